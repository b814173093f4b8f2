//! Terminals: termios, window size, ioctl numbers.
