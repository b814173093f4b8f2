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

    /// The cores, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&core| self.contains(core))
    }
}

/// Which cores are for what. A core may be in both sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Cores that run applications.
    pub application: CoreSet,
    /// Cores that run servers.
    pub kernel: CoreSet,
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
}

impl Layout {
    /// The layout for `core_count` cores when the user names none or some of the sets: with one core,
    /// both roles; else the last core is the kernel core and the others are application cores.
    pub fn choose(
        core_count: usize,
        application: Option<CoreSet>,
        kernel: Option<CoreSet>,
    ) -> Result<Layout, LayoutError> {
        let all = CoreSet::first(core_count);
        let last = CoreSet(1 << (core_count - 1));
        let layout = match (application, kernel) {
            (Some(application), Some(kernel)) => Layout { application, kernel },
            (Some(application), None) => {
                let rest = CoreSet(all.0 & !application.0);
                Layout {
                    application,
                    kernel: if rest == CoreSet::EMPTY { application } else { rest },
                }
            }
            (None, Some(kernel)) => {
                let rest = CoreSet(all.0 & !kernel.0);
                Layout { application: if rest == CoreSet::EMPTY { kernel } else { rest }, kernel }
            }
            (None, None) if core_count == 1 => Layout { application: all, kernel: all },
            (None, None) => Layout { application: CoreSet(all.0 & !last.0), kernel: last },
        };
        if (layout.application.0 | layout.kernel.0) & !all.0 != 0 {
            return Err(LayoutError::NoSuchCore);
        }
        if layout.application == CoreSet::EMPTY {
            return Err(LayoutError::NoApplicationCore);
        }
        if layout.kernel == CoreSet::EMPTY {
            return Err(LayoutError::NoKernelCore);
        }
        Ok(layout)
    }
}

/// The layout where no path is fixed: every core runs programs, and the last one serves calls. It does so
/// all the time while no program needs it (`thread_core`).
pub fn shared(core_count: usize) -> Layout {
    let last = CoreSet(1 << (core_count - 1));
    Layout { application: CoreSet::first(core_count), kernel: last }
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

    #[test]
    fn one_core_has_both_roles() {
        let layout = Layout::choose(1, None, None).unwrap();
        assert_eq!(layout.application, layout.kernel);
    }

    #[test]
    fn two_cores_are_one_of_each() {
        let layout = Layout::choose(2, None, None).unwrap();
        assert_eq!((layout.application, layout.kernel), (CoreSet(1), CoreSet(2)));
    }

    #[test]
    fn naming_one_set_leaves_the_rest_for_the_other() {
        let layout = Layout::choose(4, None, Some(CoreSet(1))).unwrap();
        assert_eq!(layout.application, CoreSet(0b1110));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(Layout::choose(2, Some(CoreSet(4)), None), Err(LayoutError::NoSuchCore));
        let none = Some(CoreSet::EMPTY);
        assert_eq!(Layout::choose(2, none, Some(CoreSet(1))), Err(LayoutError::NoApplicationCore));
        assert_eq!(Layout::choose(2, Some(CoreSet(1)), none), Err(LayoutError::NoKernelCore));
    }

    #[test]
    fn a_shared_kernel_core_gets_threads_when_the_others_have_more() {
        let layout = shared(2);
        let core_with = |loads: [usize; 2]| thread_core(&layout, CoreSet(3), 0, |core| loads[core]);
        assert_eq!(core_with([0, 0]), 0);
        assert_eq!(core_with([1, 0]), 0);
        assert_eq!(core_with([2, 0]), 1);
        assert_eq!(core_with([2, 1]), 0);
        assert_eq!(shared(1), Layout::choose(1, None, None).unwrap());
    }

    #[test]
    fn every_class_has_a_kernel_core() {
        let layout = Layout::choose(4, None, Some(CoreSet(0b1100))).unwrap();
        for class in [Class::File, Class::Network, Class::Process, Class::Other] {
            assert!(layout.kernel.contains(server_core(&layout, class)));
        }
    }

    #[test]
    fn threads_go_to_the_least_loaded_allowed_core() {
        let layout = Layout::choose(4, Some(CoreSet(0b0111)), Some(CoreSet(0b1000))).unwrap();
        let load = |core| [3, 1, 0, 0][core];
        assert_eq!(thread_core(&layout, CoreSet(0b0011), 0, load), 1);
        assert_eq!(thread_core(&layout, CoreSet(0b1111), 0, load), 2);
        assert_eq!(thread_core(&layout, CoreSet(0b1000), 0, load), 2);
    }
}
