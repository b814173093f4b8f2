//! Who may depend on whom (DESIGN, section 4), read from `cargo metadata`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;
use crate::test::cargo;

/// Each crate and the crates of Ferry that it may use, for its code and for its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("hal", &[]),
    ("policy", &["abi"]),
    ("base", &["hal", "abi"]),
    ("drivers", &["base", "abi"]),
    ("fs", &["base", "abi"]),
    ("net", &["base", "abi"]),
    ("kernel", &["abi", "policy", "hal", "base", "drivers", "fs", "net"]),
    ("ferry", &["abi"]),
    ("trace", &["abi"]),
    ("sim", &["abi", "policy", "trace"]),
    ("cli", &["abi", "policy", "trace", "sim", "model"]),
    ("bench", &["ferry"]),
    ("model", &[]),
    ("model-plugin", &["model"]),
    ("xtask", &[]),
];

/// What asking cargo may take.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);

/// All dependencies that the design does not allow, one line each.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut command = cargo(root);
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    if !finished.succeeded() {
        bail!("cargo metadata fails:\n{}", finished.stderr);
    }
    let metadata: Value =
        serde_json::from_str(&finished.stdout).context("cargo metadata is not JSON")?;
    Ok(violations_in(&metadata))
}

fn violations_in(metadata: &Value) -> Vec<String> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_string();
    let packages = list(metadata, "packages");
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut found = Vec::new();
    for package in &packages {
        let crate_name = name(package);
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == crate_name) else {
            found.push(format!("{crate_name}: a crate that the design does not know"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let used = name(&dependency);
            if ours.contains(&used) && !allowed.contains(&used.as_str()) {
                let may = if allowed.is_empty() { "none".to_string() } else { allowed.join(", ") };
                found.push(format!("{crate_name} uses {used}, but of Ferry it may use: {may}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        violations_in(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn forbidden_directions_are_found() {
        let text = r#"{"packages": [
            {"name": "fs", "dependencies": [{"name": "base"}, {"name": "drivers"}, {"name": "log"}]},
            {"name": "base", "dependencies": []}, {"name": "drivers", "dependencies": []}]}"#;
        assert_eq!(check(text), ["fs uses drivers, but of Ferry it may use: base, abi"]);
    }

    #[test]
    fn unknown_crates_are_found() {
        let text = r#"{"packages": [{"name": "misc", "dependencies": []}]}"#;
        assert_eq!(check(text).len(), 1);
    }
}
