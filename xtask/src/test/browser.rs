//! A real browser, headless: opens a page from a file and tells what it shows and what it complains of.
//!
//! Each call starts Chromium with a profile of its own below the folder of the tests, and ends it at a
//! deadline.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

/// What one look may take; a second or two on an idle machine.
const DEADLINE: Duration = Duration::from_secs(90);
/// What Debian and others call it.
const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// A browser that is installed.
pub struct Browser {
    program: &'static str,
    /// For profiles and what the browser writes.
    work: PathBuf,
}

/// What was seen of a page.
pub struct Seen {
    /// The document as it stood at the end.
    pub document: String,
    /// What the console said, one message per line.
    pub console: Vec<String>,
    /// What was on the screen.
    pub picture: Picture,
    /// The page as it would be printed.
    pub print: Vec<u8>,
}

/// Pixels from the left and the top, in shades of grey besides their colours.
pub struct Picture {
    width: usize,
    /// Red, green and blue of each pixel.
    pixels: Vec<[u8; 3]>,
}

/// A part of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Pixels from the left.
    pub left: usize,
    /// Pixels from the top.
    pub top: usize,
    /// Pixels from side to side.
    pub width: usize,
    /// Pixels from top to bottom.
    pub height: usize,
}

impl Browser {
    /// The browser of this machine, if it has one.
    pub fn find(work: &Path) -> Option<Browser> {
        let folders = std::env::var_os("PATH")?;
        let has =
            |name: &&str| std::env::split_paths(&folders).any(|folder| folder.join(name).exists());
        let program = NAMES.iter().copied().find(has)?;
        Some(Browser { program, work: work.to_path_buf() })
    }

    /// Opens a page in a window of this size.
    pub fn look(&self, page: &Path, (width, height): (u32, u32)) -> Result<Seen> {
        let [picture, print] = ["page.png", "page.pdf"].map(|name| self.work.join(name));
        let mut command = Command::new(self.program);
        command.args(["--headless=new", "--disable-gpu", "--no-first-run", "--disable-extensions"]);
        command.args(["--disable-background-networking", "--disable-dev-shm-usage"]);
        command.args(["--hide-scrollbars", "--force-device-scale-factor=1"]);
        command.args(["--enable-logging=stderr", "--dump-dom", "--no-pdf-header-footer"]);
        if rustix::process::getuid().is_root() {
            // Chromium has no sandbox for root. It sees pages of this test only.
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", self.work.join("profile").display()));
        command.arg(format!("--window-size={width},{height}"));
        command.arg(format!("--screenshot={}", picture.display()));
        command.arg(format!("--print-to-pdf={}", print.display()));
        command.arg(format!("file://{}", page.display()));
        let finished = process::run(&mut command, b"", DEADLINE)?;
        ensure!(finished.succeeded(), "{}: {}", self.program, finished.describe());
        let read = |file: &Path| {
            std::fs::read(file)
                .with_context(|| format!("no {}: {}", file.display(), finished.stderr))
        };
        Ok(Seen {
            picture: Picture::decode(&read(&picture)?)?,
            print: read(&print)?,
            console: console(&finished.stderr),
            document: finished.stdout,
        })
    }
}

/// The lines of the log that come from the page's console.
fn console(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_string).collect()
}

impl Picture {
    fn decode(bytes: &[u8]) -> Result<Picture> {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info()?;
        let size = reader.output_buffer_size().context("the picture is too large")?;
        let mut bytes = vec![0; size];
        let info = reader.next_frame(&mut bytes)?;
        let channels = info.color_type.samples();
        ensure!(channels >= 3, "the picture has {channels} channels, not red, green and blue");
        let pixels = bytes[..info.buffer_size()].chunks_exact(channels);
        let pixels = pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        Ok(Picture { width: info.width as usize, pixels })
    }

    /// The whole of it.
    pub fn area(&self) -> Area {
        let height = self.pixels.len() / self.width.max(1);
        Area { left: 0, top: 0, width: self.width, height }
    }

    fn pixels(&self, area: Area) -> impl Iterator<Item = [u8; 3]> {
        let rows = self.pixels.chunks_exact(self.width).skip(area.top).take(area.height);
        rows.flat_map(move |row| row.iter().copied().skip(area.left).take(area.width))
    }

    /// The share of an area that is dark when it is printed in black and white.
    pub fn ink(&self, area: Area) -> f64 {
        let is_dark = |[red, green, blue]: [u8; 3]| {
            0.3 * f64::from(red) + 0.59 * f64::from(green) + 0.11 * f64::from(blue) < 128.0
        };
        let dark = self.pixels(area).filter(|pixel| is_dark(*pixel)).count();
        dark as f64 / (area.width * area.height).max(1) as f64
    }

    /// How many colours an area has.
    pub fn colours(&self, area: Area) -> usize {
        self.pixels(area).collect::<std::collections::HashSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ink_and_colours_are_those_of_the_area() {
        let (black, white) = ([0; 3], [255; 3]);
        let pixels = vec![black, white, white, [200, 0, 0], white, white];
        let picture = Picture { width: 3, pixels };
        assert_eq!(picture.area(), Area { left: 0, top: 0, width: 3, height: 2 });
        assert_eq!((picture.ink(picture.area()), picture.colours(picture.area())), (2.0 / 6.0, 3));
        let right = Area { left: 1, top: 0, width: 2, height: 2 };
        assert_eq!((picture.ink(right), picture.colours(right)), (0.0, 1));
    }

    #[test]
    fn pictures_are_decoded() {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(png::ColorType::Rgba);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[1, 2, 3, 255, 4, 5, 6, 255]).unwrap();
        drop(writer);
        assert_eq!(Picture::decode(&bytes).unwrap().pixels, [[1, 2, 3], [4, 5, 6]]);
        assert!(Picture::decode(&bytes[..20]).is_err());
    }

    #[test]
    fn only_the_console_is_heard() {
        let log = "[1:1:0/1.0:ERROR:dbus/bus.cc:405] Failed\n\
                   [1:1:0/1.0:INFO:CONSOLE:1] \"Uncaught Error: oops\", source: file:///a (1)\n";
        assert_eq!(console(log).len(), 1);
        assert!(console(log)[0].contains("oops"));
    }
}
