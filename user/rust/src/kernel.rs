//! The other side of a syspage: the kernel, or a test double of it.

use std::time::Duration;

use crate::entries::{Control, Entries};
use crate::raw::binding::Binding;
use crate::raw::operations::Call;

/// Who carries calls out.
pub(crate) enum Kernel {
    /// This thread has a syspage.
    Bound(Binding),
    /// A thread of the test.
    #[cfg(test)]
    Double(std::sync::Arc<crate::double::Double>),
}

impl Kernel {
    #[inline]
    pub(crate) fn entries(&self) -> &Entries {
        match self {
            Kernel::Bound(binding) => binding.entries(),
            #[cfg(test)]
            Kernel::Double(double) => &double.entries,
        }
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        match self {
            Kernel::Bound(binding) => binding.control(),
            #[cfg(test)]
            Kernel::Double(double) => &double.control,
        }
    }

    /// `ferry_wait`.
    pub(crate) fn wait(&self, mode: u64, index: u32, timeout: Option<Duration>) -> i64 {
        match self {
            Kernel::Bound(binding) => binding.wait(mode, index, timeout),
            #[cfg(test)]
            Kernel::Double(double) => double.wait(mode, index, timeout),
        }
    }

    /// `ferry_cancel`.
    pub(crate) fn cancel(&self, index: u32) -> i64 {
        match self {
            Kernel::Bound(binding) => binding.cancel(index),
            #[cfg(test)]
            Kernel::Double(double) => double.cancel(index),
        }
    }

    /// Carries a call out by a trap.
    pub(crate) fn trap(&self, call: &Call) -> i64 {
        match self {
            Kernel::Bound(_) => call.trap(),
            #[cfg(test)]
            Kernel::Double(double) => double.trap(call),
        }
    }
}
