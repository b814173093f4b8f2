//! Where things run: which cores have which role, which core a new thread starts on, and which core
//! carries the server of a class.

use crate::route::Class;

/// A set of cores, bit n for core n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSet(pub u64);

impl CoreSet {
    /// No core.
    pub const EMPTY: CoreSet = CoreSet(0);

    /// Cores 0 to `count` - 1.
    pub const fn first(count: usize) -> CoreSet {
        CoreSet(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// Whether the core is in the set.
    pub const fn contains(self, core: usize) -> bool {
        core < 64 && self.0 >> core & 1 != 0
    }

    /// Number of cores in the set.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Those that are not in the other set.
    const fn without(self, other: CoreSet) -> CoreSet {
        CoreSet(self.0 & !other.0)
    }

    /// The set, or the other one if it is empty.
    const fn or(self, other: CoreSet) -> CoreSet {
        if self.0 == 0 { other } else { self }
    }

    /// The first core alone.
    const fn lowest(self) -> CoreSet {
        CoreSet(self.0 & self.0.wrapping_neg())
    }

    /// The last core alone.
    const fn highest(self) -> CoreSet {
        CoreSet(if self.0 == 0 { 0 } else { 1 << self.0.ilog2() })
    }

    /// The cores, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&core| self.contains(core))
    }
}

/// Which cores are for what. A core may be in several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Cores that run applications.
    pub application: CoreSet,
    /// Cores that run servers.
    pub kernel: CoreSet,
    /// Cores that look after devices and take their interrupts.
    pub interrupt: CoreSet,
}

/// What a user asks of a layout: the sets that are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Cores that run applications.
    pub application: Option<CoreSet>,
    /// Cores that run servers.
    pub kernel: Option<CoreSet>,
    /// Cores that look after devices.
    pub interrupt: Option<CoreSet>,
}

/// Why a layout cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// A set names a core that the machine does not have.
    NoSuchCore,
    /// No core would run applications.
    NoApplicationCore,
    /// No core would run servers.
    NoKernelCore,
    /// No core would look after devices.
    NoInterruptCore,
}

impl Layout {
    /// The layout for `core_count` cores. What is not named: interrupts go to the first kernel core; of the
    /// cores that are in no set that is named, or of all if there are none, the last is the kernel core and
    /// the others run applications. With `is_shared` all of them run applications; the last serves calls as
    /// long as no program needs it (`thread_core`).
    pub fn choose(
        core_count: usize,
        wishes: Wishes,
        is_shared: bool,
    ) -> Result<Layout, LayoutError> {
        let all = CoreSet::first(core_count);
        let Wishes { application, kernel, interrupt } = wishes;
        let errors = [
            (application, LayoutError::NoApplicationCore),
            (kernel, LayoutError::NoKernelCore),
            (interrupt, LayoutError::NoInterruptCore),
        ];
        for (set, error) in errors {
            let Some(set) = set else { continue };
            if set == CoreSet::EMPTY {
                return Err(error);
            }
            if set.0 & !all.0 != 0 {
                return Err(LayoutError::NoSuchCore);
            }
        }
        let free = all.without(interrupt.unwrap_or(CoreSet::EMPTY)).or(all);
        let layout = |application, kernel: CoreSet| {
            let interrupt = interrupt.unwrap_or(kernel.lowest());
            Layout { application, kernel, interrupt }
        };
        Ok(match (application, kernel) {
            (Some(application), Some(kernel)) => layout(application, kernel),
            (Some(application), None) => {
                layout(application, free.without(application).or(application))
            }
            (None, Some(kernel)) => layout(free.without(kernel).or(kernel), kernel),
            (None, None) if is_shared => layout(free, free.highest()),
            (None, None) => layout(free.without(free.highest()).or(free), free.highest()),
        })
    }
}

/// The core that carries the server of a class: the classes are dealt out over the kernel cores in
/// turn, starting with files, so that with one kernel core all are there.
pub fn server_core(layout: &Layout, class: Class) -> usize {
    let turn = class as usize % layout.kernel.count();
    layout.kernel.iter().nth(turn).unwrap_or(0)
}

/// The application core on which a new thread starts: the least loaded one that it may use, the
/// nearest after `parent` among equals. `load` gives the number of threads of a core; serving calls
/// counts as one more. Falls back to every application core when `allowed` leaves none.
pub fn thread_core(
    layout: &Layout,
    allowed: CoreSet,
    parent: usize,
    load: impl Fn(usize) -> usize,
) -> usize {
    let usable = match CoreSet(layout.application.0 & allowed.0) {
        CoreSet::EMPTY => layout.application,
        some => some,
    };
    let load = |core| load(core) + usize::from(layout.kernel.contains(core));
    usable.iter().min_by_key(|&core| (load(core), core.wrapping_sub(parent) % 64)).unwrap_or(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Application, kernel and interrupt cores; as a wish, 0 is what is not named.
    fn sets(count: usize, wishes: [u64; 3], is_shared: bool) -> Result<[u64; 3], LayoutError> {
        let [application, kernel, interrupt] =
            wishes.map(|set| Some(CoreSet(set)).filter(|set| *set != CoreSet::EMPTY));
        let layout = Layout::choose(count, Wishes { application, kernel, interrupt }, is_shared)?;
        Ok([layout.application, layout.kernel, layout.interrupt].map(|set| set.0))
    }

    fn layout(count: usize, wishes: [u64; 3], is_shared: bool) -> Layout {
        let [application, kernel, interrupt] = sets(count, wishes, is_shared).unwrap().map(CoreSet);
        Layout { application, kernel, interrupt }
    }

    #[test]
    fn one_core_has_all_roles() {
        for is_shared in [false, true] {
            assert_eq!(sets(1, [0, 0, 0], is_shared), Ok([1, 1, 1]));
            assert_eq!(sets(1, [0, 0, 1], is_shared), Ok([1, 1, 1]));
        }
    }

    #[test]
    fn two_cores_are_one_of_each_or_shared() {
        assert_eq!(sets(2, [0, 0, 0], false), Ok([0b01, 0b10, 0b10]));
        assert_eq!(sets(2, [0, 0, 0], true), Ok([0b11, 0b10, 0b10]));
    }

    #[test]
    fn naming_some_sets_leaves_the_rest_for_the_others() {
        assert_eq!(sets(4, [0, 0b0001, 0], true), Ok([0b1110, 0b0001, 0b0001]));
        assert_eq!(sets(4, [0, 0, 0b1000], false), Ok([0b0011, 0b0100, 0b1000]));
        assert_eq!(sets(4, [0, 0, 0b1000], true), Ok([0b0111, 0b0100, 0b1000]));
        assert_eq!(sets(4, [0b0011, 0, 0b1000], true), Ok([0b0011, 0b0100, 0b1000]));
        assert_eq!(sets(2, [0, 0, 0b11], false), Ok([0b01, 0b10, 0b11]));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(sets(2, [0b100, 0, 0], false), Err(LayoutError::NoSuchCore));
        assert_eq!(sets(2, [0, 0, 0b100], false), Err(LayoutError::NoSuchCore));
        let choose = |wishes| Layout::choose(2, wishes, false);
        let none = Some(CoreSet::EMPTY);
        let refused = [
            (Wishes { application: none, ..Wishes::default() }, LayoutError::NoApplicationCore),
            (Wishes { kernel: none, ..Wishes::default() }, LayoutError::NoKernelCore),
            (Wishes { interrupt: none, ..Wishes::default() }, LayoutError::NoInterruptCore),
        ];
        for (wishes, error) in refused {
            assert_eq!(choose(wishes), Err(error));
        }
    }

    #[test]
    fn a_shared_kernel_core_gets_threads_when_the_others_have_more() {
        let layout = layout(2, [0, 0, 0], true);
        let core_with = |loads: [usize; 2]| thread_core(&layout, CoreSet(3), 0, |core| loads[core]);
        assert_eq!(core_with([0, 0]), 0);
        assert_eq!(core_with([1, 0]), 0);
        assert_eq!(core_with([2, 0]), 1);
        assert_eq!(core_with([2, 1]), 0);
    }

    #[test]
    fn every_class_has_a_kernel_core() {
        let layout = layout(4, [0, 0b1100, 0], false);
        for class in [Class::File, Class::Network, Class::Process, Class::Other] {
            assert!(layout.kernel.contains(server_core(&layout, class)));
        }
    }

    #[test]
    fn threads_go_to_the_least_loaded_allowed_core() {
        let layout = layout(4, [0b0111, 0b1000, 0], false);
        let load = |core| [3, 1, 0, 0][core];
        assert_eq!(thread_core(&layout, CoreSet(0b0011), 0, load), 1);
        assert_eq!(thread_core(&layout, CoreSet(0b1111), 0, load), 2);
        assert_eq!(thread_core(&layout, CoreSet(0b1000), 0, load), 2);
    }
}
