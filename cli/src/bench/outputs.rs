//! Where the results of a command go: a directory with the record and its page, and the files that
//! `--json` and `--html` name.
//!
//! Whether they can be written is found out before anything is measured; files that are there already
//! stay as they are until there is something to put in their place.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::html;
use super::record::Record;
use crate::status::Usage;

/// The page in a directory of results.
const PAGE: &str = "report.html";

/// Where results go.
pub struct Outputs {
    directory: PathBuf,
    json: Option<PathBuf>,
    html: Option<PathBuf>,
}

impl Outputs {
    /// Outputs that can be written, as far as can be told now.
    pub fn new(
        directory: PathBuf,
        json: Option<PathBuf>,
        html: Option<PathBuf>,
    ) -> Result<Outputs> {
        if json.is_some() && json == html {
            let text = "--json and --html name the same file; give each its own";
            return Err(Usage(text.to_owned()).into());
        }
        for (option, file) in [("--json", &json), ("--html", &html)] {
            if let Some(file) = file {
                check_file(file).map_err(|error| {
                    Usage(format!("cannot write {}, which {option} names: {error}", file.display()))
                })?;
            }
        }
        std::fs::create_dir_all(&directory)
            .and_then(|()| check_file(&directory.join("results.json.new")))
            .map_err(|error| {
                let directory = directory.display();
                Usage(format!(
                    "cannot keep the results in {directory} ({error}): name another with --out"
                ))
            })?;
        Ok(Outputs { directory, json, html })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the figures, in place of what an earlier repeat wrote.
    pub fn write_figures(&self, record: &Record) -> Result<()> {
        record.write(&self.directory)?;
        match &self.json {
            Some(file) => write(file, &(serde_json::to_string_pretty(&record.outcomes)? + "\n")),
            None => Ok(()),
        }
    }

    /// Writes everything.
    pub fn write(&self, record: &Record) -> Result<()> {
        self.write_figures(record)?;
        let page = html::page(record);
        write(&self.directory.join(PAGE), &page)?;
        self.html.iter().try_for_each(|file| write(file, &page))
    }
}

/// `ferry bench report`: makes the page of a record once more.
pub fn report(results: &Path, file: Option<&Path>) -> Result<()> {
    let record = Record::read(results)?;
    let file = match file {
        Some(file) => file.to_path_buf(),
        None if results.is_dir() => results.join(PAGE),
        None => bail!("{} is a file: say with --html where its page goes", results.display()),
    };
    write(&file, &html::page(&record))?;
    println!("wrote {}", file.display());
    Ok(())
}

/// Writes a text file.
pub fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Whether a file can be written. It stays as it is; one that was not there is not there afterwards.
fn check_file(file: &Path) -> std::io::Result<()> {
    let was_there = file.exists();
    OpenOptions::new().append(true).create(true).open(file)?;
    if was_there { Ok(()) } else { std::fs::remove_file(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_written_where_it_was_asked_for() {
        let work = tempfile::tempdir().unwrap();
        let [out, json, html] = ["out", "a.json", "a.html"].map(|name| work.path().join(name));
        let outputs = Outputs::new(out.clone(), Some(json.clone()), Some(html.clone())).unwrap();
        assert!(!json.exists() && !html.exists());
        outputs.write(&Record::begin(1)).unwrap();
        let page = std::fs::read_to_string(&html).unwrap();
        assert_eq!(std::fs::read_to_string(out.join(PAGE)).unwrap(), page);
        assert_eq!(std::fs::read_to_string(&json).unwrap(), "[]\n");
        std::fs::remove_file(out.join(PAGE)).unwrap();
        report(&out, None).unwrap();
        assert_eq!(std::fs::read_to_string(out.join(PAGE)).unwrap(), page);
    }

    #[test]
    fn what_cannot_be_written_is_told_before_and_by_its_option() {
        let work = tempfile::tempdir().unwrap();
        let [out, bad] = ["out", "none/file"].map(|name| work.path().join(name));
        let refused = |out: &Path, json: Option<&PathBuf>, html: Option<&PathBuf>| {
            let outputs = Outputs::new(out.to_path_buf(), json.cloned(), html.cloned());
            format!("{:#}", outputs.err().expect("it is refused"))
        };
        assert!(refused(&out, Some(&bad), None).contains("none/file, which --json names"));
        assert!(refused(&out, None, Some(&bad)).contains("none/file, which --html names"));
        let file = work.path().join("file");
        assert!(refused(&out, Some(&file), Some(&file)).contains("same file"));
        std::fs::write(&file, "precious").unwrap();
        assert!(refused(&file.join("out"), None, None).contains("another with --out"));
        assert!(Outputs::new(out, Some(file.clone()), None).is_ok());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn the_page_of_a_lone_file_needs_a_name() {
        let work = tempfile::tempdir().unwrap();
        Record::begin(1).write(work.path()).unwrap();
        let file = work.path().join("results.json");
        assert!(report(&file, None).unwrap_err().to_string().contains("--html"));
        report(&file, Some(&work.path().join("page.html"))).unwrap();
    }
}
