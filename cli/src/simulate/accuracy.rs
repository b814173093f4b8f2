//! `ferry sim accuracy`: published figures of three and four cores, from those of one and two.

use anyhow::Result;
use sim::accuracy::{CALLS, Row, empty_calls, knees, workloads};

use crate::bench::table::Table;
use crate::traces;

/// Carries out `ferry sim accuracy`.
pub fn run() -> Result<u8> {
    traces::print(&published()?)?;
    Ok(0)
}

/// The published figures beside their predictions, as tables.
pub fn published() -> Result<String> {
    let mut rows = workloads(CALLS)?;
    rows.extend(empty_calls()?);
    Ok(text(&rows))
}

fn text(rows: &[Row]) -> String {
    let heads = ["workload", "cores", "unit", "measured", "predicted", "off %", "published off %"];
    let cells = rows.iter().map(|row| {
        vec![
            row.name.to_owned(),
            row.cores.to_string(),
            row.unit.to_owned(),
            format!("{:.2}", row.measured),
            format!("{:.2}", row.predicted),
            format!("{:+.1}", row.error_pct()),
            row.published_error_pct.map_or("-".to_owned(), |error| format!("{error:+.1}")),
        ]
    });
    let mut text =
        Table { heads: heads.map(str::to_owned).to_vec(), rows: cells.collect() }.to_text();
    let within = rows.iter().filter(|row| row.error_pct().abs() <= 10.0).count();
    text += &format!(
        "\n{within} of {} are within 10 %. Only figures of one and two cores go in; the published \
         simulator was given traces of three.\n\n",
        rows.len()
    );
    let heads = ["knee of the throughput", "measured, cores", "predicted, cores"];
    let cells = knees().into_iter().map(|knee| {
        vec![knee.name.to_owned(), knee.measured.to_string(), knee.predicted.to_string()]
    });
    text + &Table { heads: heads.map(str::to_owned).to_vec(), rows: cells.collect() }.to_text()
}
