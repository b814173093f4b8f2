//! Sweeps past one machine: a script for a Slurm array with a task for each point, the file that each task
//! writes, and all of them together. The nodes share the directory, as those of a cluster do.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::sweep::Simulated;

/// Writes the script for the sweep that this command asks for.
pub fn write(script: &Path, points: usize) -> Result<u8> {
    let program = std::env::current_exe()?;
    let here = std::env::current_dir()?;
    let script = here.join(script);
    let name = script.display();
    let mut text = format!(
        "#!/bin/sh\n# Submit with sbatch; then: ferry sim sweep ... --collect {name}\n\
         #SBATCH --job-name=ferry-sim\n#SBATCH --array=0-{}\n#SBATCH --ntasks=1\n\
         #SBATCH --cpus-per-task=1\n#SBATCH --output={name}.%a.log\n\
         cd {} || exit\nexec {}",
        points - 1,
        quoted(&here.to_string_lossy()),
        quoted(&program.to_string_lossy())
    );
    for argument in passed_on(std::env::args_os().skip(1)) {
        // Writing to a String cannot fail.
        let _ = write!(text, " {}", quoted(&argument.to_string_lossy()));
    }
    let _ = writeln!(
        text,
        " --point \"$SLURM_ARRAY_TASK_ID\" --of {}",
        quoted(&script.to_string_lossy())
    );
    std::fs::write(&script, text).with_context(|| format!("cannot write {name}"))?;
    eprintln!("ferry sim: {name} has {points} tasks; submit it with sbatch, then use --collect");
    Ok(0)
}

/// The arguments of this command without the one that asks for a script.
fn passed_on(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--slurm") => drop(arguments.next()),
            Some(text) if text.starts_with("--slurm=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// A word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn result_file(script: &Path, number: usize) -> PathBuf {
    let mut name = script.as_os_str().to_owned();
    name.push(format!(".{number}.json"));
    name.into()
}

/// Writes the result of a point.
pub fn keep(script: &Path, number: usize, result: &Simulated) -> Result<u8> {
    let file = result_file(script, number);
    std::fs::write(&file, serde_json::to_string(result)? + "\n")
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(result.status)
}

/// The results that are there, in the order of the points.
pub fn collect(script: &Path, points: usize) -> Result<Vec<Simulated>> {
    let mut results = Vec::new();
    for number in 0..points {
        let file = result_file(script, number);
        let Ok(text) = std::fs::read_to_string(&file) else {
            eprintln!(
                "ferry sim: point {number} has no result: see {}.{number}.log",
                script.display()
            );
            continue;
        };
        let result = serde_json::from_str(&text);
        results.push(result.with_context(|| format!("{} is no result", file.display()))?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_gets_all_arguments_but_the_script() {
        let given = ["sim", "sweep", "a b", "--slurm", "x", "--cores", "1,2"].map(OsString::from);
        let kept = passed_on(given.into_iter());
        assert_eq!(kept, ["sim", "sweep", "a b", "--cores", "1,2"].map(OsString::from));
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
