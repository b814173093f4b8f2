//! Hot spots by function: names for the addresses of blocks, from the symbols of kernel and program.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use addr2line::Loader;
use model::HotSpot;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use serde::{Deserialize, Serialize};

/// Longer names are cut, in characters.
const LONGEST_NAME: usize = 120;

/// What was counted in a function, on one virtual CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its name; where there are no symbols, whose code it is.
    pub name: String,
    /// The virtual CPU.
    pub cpu: usize,
    /// Instructions executed.
    pub instructions: u64,
    /// Misses of the first-level data cache.
    pub l1d: u64,
    /// Lines from memory or from another CPU.
    pub llc: u64,
}

/// Adds hot spots up by function, the most instructions first.
pub fn of(spots: &[HotSpot], kernel: &Path, program: Option<&Path>) -> Vec<Function> {
    let kernel = Symbols::read(kernel);
    let program = program.and_then(Symbols::read);
    add_up(spots, |address| {
        let (symbols, otherwise) = match address >> 63 != 0 {
            true => (&kernel, "kernel code"),
            false => (&program, "user code"),
        };
        let symbol = symbols.as_ref().and_then(|symbols| symbols.name(address));
        symbol.map_or(otherwise.to_owned(), |symbol| {
            shortened(addr2line::demangle_auto(symbol.into(), None).into_owned())
        })
    })
}

/// A name, cut where types of types make it unreadable anyway.
fn shortened(name: String) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name,
    }
}

/// The symbols of a file whose code is always at the addresses that they have.
struct Symbols {
    loader: Loader,
    code: Vec<Range<u64>>,
}

impl Symbols {
    /// `None` for files without symbols, and for those that are loaded anywhere.
    fn read(file: &Path) -> Option<Symbols> {
        let bytes = std::fs::read(file).ok()?;
        let elf = ElfFile64::<object::Endianness>::parse(bytes.as_slice()).ok()?;
        let endian = elf.endian();
        if elf.elf_header().e_type(endian) != object::elf::ET_EXEC {
            return None;
        }
        let headers = elf.elf_program_headers().iter();
        let code = headers.filter(|header| {
            let is_code =
                header.p_flags(endian) & object::elf::PF_X != object::elf::ProgramFlags(0);
            header.p_type(endian) == object::elf::PT_LOAD && is_code
        });
        let code = code.map(|header| {
            let start = header.p_vaddr(endian);
            start..start.saturating_add(header.p_memsz(endian))
        });
        Some(Symbols { code: code.collect(), loader: Loader::new(file).ok()? })
    }

    /// The name of the function at an address; the nearest symbol would do for any address.
    fn name(&self, address: u64) -> Option<&str> {
        let is_known = self.code.iter().any(|range| range.contains(&address));
        if is_known { self.loader.find_symbol(address) } else { None }
    }
}

fn add_up(spots: &[HotSpot], name: impl Fn(u64) -> String) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    let mut known: HashMap<(String, usize), usize> = HashMap::new();
    for spot in spots {
        let name = name(spot.address);
        let at = *known.entry((name.clone(), spot.cpu)).or_insert_with(|| {
            let cpu = spot.cpu;
            functions.push(Function { name, cpu, instructions: 0, l1d: 0, llc: 0 });
            functions.len() - 1
        });
        functions[at].instructions += spot.instructions;
        functions[at].l1d += spot.l1d;
        functions[at].llc += spot.llc;
    }
    functions.sort_by_key(|function| std::cmp::Reverse(function.instructions));
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(address: u64, cpu: usize, instructions: u64) -> HotSpot {
        HotSpot { address, cpu, instructions, l1d: 1, llc: 2 }
    }

    #[test]
    fn blocks_of_a_function_are_added_up_for_each_cpu() {
        let spots = [spot(1, 0, 10), spot(2, 0, 20), spot(9, 0, 25), spot(1, 1, 5)];
        let name = |address| if address < 5 { "low" } else { "high" }.to_owned();
        let functions = add_up(&spots, name);
        let told: Vec<_> = functions
            .iter()
            .map(|of| (of.name.as_str(), of.cpu, of.instructions, of.l1d))
            .collect();
        assert_eq!(told, [("low", 0, 30, 2), ("high", 0, 25, 1), ("low", 1, 5, 1)]);
    }

    #[test]
    fn only_files_at_fixed_addresses_give_names_and_only_for_their_code() {
        let directory = tempfile::tempdir().unwrap();
        let build = |option: &str| {
            let (source, file) = (directory.path().join("a.c"), directory.path().join(option));
            std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
            let mut command = std::process::Command::new("cc");
            assert!(
                command.arg(option).arg("-o").args([&file, &source]).status().unwrap().success()
            );
            file
        };
        assert!(Symbols::read(&build("-pie")).is_none());
        let symbols = Symbols::read(&build("-no-pie")).unwrap();
        let start = symbols.code[0].start;
        let named = (start..symbols.code[0].end).any(|at| symbols.name(at) == Some("main"));
        assert!(named && symbols.name(start - 1).is_none() && symbols.name(u64::MAX).is_none());
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("f".to_owned()), "f");
        assert_eq!(shortened("ä".repeat(500)).chars().count(), LONGEST_NAME + 1);
    }

    #[test]
    fn without_symbols_it_is_said_whose_code_it_is() {
        let none = Path::new("/no/such/file");
        let functions = of(&[spot(1, 0, 2), spot(u64::MAX, 0, 1)], none, Some(none));
        let names: Vec<_> = functions.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["user code", "kernel code"]);
    }
}
