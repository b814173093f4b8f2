//! A plugin of QEMU that feeds the model of caches and TLBs with what the virtual CPUs do, and writes
//! the report when QEMU ends.
//!
//! Options, as QEMU takes them: `-plugin FILE,out=REPORT[,region=marked][,hot=N][,l2=1024:16]…`.
//! With `region=marked` nothing counts before the first marker. The sizes are those of `model::Sizes`.
//!
//! Version 1 of QEMU's interface, which QEMU 7.2 has, shows blocks of instructions as they are
//! translated and executed, and memory accesses with virtual and physical address; it shows no
//! registers, page tables or interrupts. Everything else is derived; `docs/model.md` says how.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use model::decode::{self, Kind};
use model::{Access, Block, Machine, Mark, Sizes};
use qemu_plugin::install::{Args, Info};
use qemu_plugin::plugin::{HasCallbacks, Register};
use qemu_plugin::{
    MemRW, PluginId, Result, TranslationBlock, qemu_plugin_register_atexit_cb, register,
};

/// Hot spots that are written for each CPU, unless an option says otherwise.
const HOT_SPOTS: usize = 2000;

/// The machine that callbacks feed. They outlive everything but the process.
static MACHINE: OnceLock<Machine> = OnceLock::new();

/// The plugin's state while it translates.
#[derive(Default)]
struct Plugin {
    /// Blocks by address: QEMU translates the same ones again and again, and keeps what it is given.
    blocks: HashMap<u64, Vec<&'static Known>>,
}

struct Known {
    block: Block,
    number: usize,
}

struct Options {
    out: PathBuf,
    hot: usize,
    waits_for_marker: bool,
    sizes: Sizes,
}

impl Options {
    fn read(arguments: &[String]) -> anyhow::Result<Options> {
        let mut options = Options {
            out: PathBuf::new(),
            hot: HOT_SPOTS,
            waits_for_marker: false,
            sizes: Sizes::default(),
        };
        for argument in arguments {
            match argument.split_once('=') {
                Some(("out", path)) => options.out = path.into(),
                Some(("hot", count)) => options.hot = count.parse()?,
                Some(("region", "marked")) => options.waits_for_marker = true,
                Some(("region", "all")) => options.waits_for_marker = false,
                Some((name, value)) if options.sizes.apply(name, value)? => {}
                _ => anyhow::bail!("the plugin does not know the option {argument:?}"),
            }
        }
        if options.out.as_os_str().is_empty() {
            anyhow::bail!("out=FILE is missing: where the report goes");
        }
        Ok(options)
    }
}

impl Register for Plugin {
    fn register(&mut self, id: PluginId, args: &Args, info: &Info) -> Result<()> {
        let options = Options::read(&args.raw)?;
        let cpus = info.system.as_ref().map_or(1, |system| system.max_vcpus);
        let cpus = usize::try_from(cpus).unwrap_or(1);
        MACHINE.get_or_init(|| Machine::new(cpus, &options.sizes, options.waits_for_marker));
        qemu_plugin_register_atexit_cb(id, move |_| {
            if let Err(error) = write(&options) {
                eprintln!("model: cannot write {}: {error:#}", options.out.display());
            }
        })
    }
}

fn write(options: &Options) -> anyhow::Result<()> {
    if let Some(machine) = MACHINE.get() {
        let file = std::io::BufWriter::new(std::fs::File::create(&options.out)?);
        serde_json::to_writer(file, &machine.report(options.hot))?;
    }
    Ok(())
}

impl HasCallbacks for Plugin {
    fn on_translation_block_translate(
        &mut self,
        _: PluginId,
        translated: TranslationBlock,
    ) -> Result<()> {
        let Some(machine) = MACHINE.get() else { return Ok(()) };
        let mut instructions = Vec::with_capacity(translated.size());
        for instruction in translated.instructions() {
            let bytes = instruction.data();
            let kind = decode::kind(&bytes);
            if let Some(mark) = Mark::of(kind) {
                instruction.register_execute_callback(move |_| machine.mark(mark));
            }
            // These touch no memory, and a core that waits executes little else.
            if !matches!(kind, Kind::Nop | Kind::Pause) {
                instruction.register_memory_access_callback(
                    move |cpu, info, address| {
                        // Before the look at the physical address, which costs more than all else.
                        if !machine.is_counting() {
                            return;
                        }
                        let Some(place) = info.hwaddr(address) else { return };
                        let access = Access {
                            address,
                            physical: place.hwaddr(),
                            size: 1 << info.size_shift(),
                            is_store: info.is_store(),
                            is_device: place.is_io(),
                        };
                        machine.access(cpu as usize, access);
                    },
                    MemRW::QEMU_PLUGIN_MEM_RW,
                );
            }
            let address = instruction.vaddr();
            // Where the instruction is in the emulator's memory: the same wherever it is mapped.
            let memory = match instruction.haddr() {
                0 => address,
                memory => memory,
            };
            instructions.push((address, memory, bytes));
        }
        let known = self.known(machine, Block::new(&instructions));
        translated.register_execute_callback(move |cpu| {
            machine.execute(cpu as usize, &known.block, known.number);
        });
        Ok(())
    }
}

impl Plugin {
    /// The block, as it is known already if it is.
    fn known(&mut self, machine: &Machine, block: Block) -> &'static Known {
        let at_address = self.blocks.entry(block.address).or_default();
        if let Some(known) = at_address.iter().find(|known| known.block == block) {
            return known;
        }
        let number = machine.number(block.address);
        // QEMU may execute a translation until it ends, so what belongs to one stays.
        let known: &'static Known = Box::leak(Box::new(Known { block, number }));
        at_address.push(known);
        known
    }
}

register!(Plugin::default());
