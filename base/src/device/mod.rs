//! What drivers are built on. Drivers, file systems and network meet here and nowhere else.

pub mod virtio;
