//! What Ferry measured of the machine while it booted (`/proc/ferry/machine`), kept beside every result:
//! machines differ, and no figure of a call means much without the price of a trap and of a line's flight.

use serde::{Deserialize, Serialize};

use super::outcome::Samples;
use super::statistics::median;

/// What the figures of the machine begin with, behind the side.
const PREFIX: &str = "machine.";

/// One figure of the machine, as the boots of one side of a suite measured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The suite.
    pub suite: String,
    /// The side.
    pub side: String,
    /// `trap_ns`, `flight_ns.ONE.OTHER` or `wake_ns.CORE`.
    pub name: String,
    /// Nanoseconds, one value per boot.
    pub samples_ns: Vec<f64>,
}

/// The figures of the machine among those of a suite.
pub fn of(suite: &str, samples: &Samples) -> Vec<Calibration> {
    let figure = |(name, values): (&String, &Vec<f64>)| {
        let (side, name) = name.split_once(' ')?;
        let name = name.strip_prefix(PREFIX)?;
        Some(Calibration {
            suite: suite.to_owned(),
            side: side.to_owned(),
            name: name.to_owned(),
            samples_ns: values.clone(),
        })
    };
    samples.iter().filter_map(figure).collect()
}

/// A line per side, with medians.
pub fn to_text(figures: &[Calibration]) -> String {
    let mut text = String::new();
    for side in
        figures.chunk_by(|one, other| (&one.suite, &one.side) == (&other.suite, &other.side))
    {
        let Some(first) = side.first() else { continue };
        let words: Vec<String> = side.iter().map(Calibration::words).collect();
        text += &format!("{}, {}: {} (at boot)\n", first.suite, first.side, words.join(", "));
    }
    text
}

impl Calibration {
    fn words(&self) -> String {
        let (what, cores) = self.name.split_once('.').unwrap_or((&self.name, ""));
        let what = what.strip_suffix("_ns").unwrap_or(what);
        let cores =
            if cores.is_empty() { String::new() } else { format!(" {}", cores.replace('.', "-")) };
        format!("{what}{cores} {:.0} ns", median(&self.samples_ns).unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_machine_are_told_apart_and_shown_by_side() {
        let samples = Samples::from([
            ("auto getppid".to_owned(), vec![300.0]),
            ("auto machine.flight_ns.0.1".to_owned(), vec![50.0, 70.0, 60.0]),
            ("auto machine.trap_ns".to_owned(), vec![105.0]),
            ("remote machine.wake_ns.1".to_owned(), vec![4100.0]),
        ]);
        let figures = of("null", &samples);
        assert_eq!(figures.len(), 3);
        let text = "null, auto: flight 0-1 60 ns, trap 105 ns (at boot)\n\
                    null, remote: wake 1 4100 ns (at boot)\n";
        assert_eq!(to_text(&figures), text);
    }
}
