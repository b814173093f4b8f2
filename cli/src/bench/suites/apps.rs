//! Ordinary programs from their start to their end. The guest program is `bench/guest/apps.c`, the
//! programs are Debian's; both kernels get the same archive with a program and all that it needs.

use crate::bench::suite::{App, Place, Run, Suite, What, case, run};

static SQLITE3: App = App { name: "sqlite3", package: "sqlite3", files: "command -v sqlite3" };

/// `encodings` is all that is not in the interpreter itself; by `os.py` it finds its library.
static PYTHON3: App = App {
    name: "python3",
    package: "python3-minimal",
    files: "command -v python3 && python3 -I -S -c '
import encodings, os
print(os.__file__)
print(os.path.dirname(encodings.__file__))'",
};

static GCC: App = App {
    name: "gcc",
    package: "gcc (with binutils and libc6-dev)",
    files: "set -e
command -v gcc
command -v as
command -v ld
for name in cc1 collect2 lto-wrapper; do gcc -print-prog-name=$name; done
for name in liblto_plugin.so crtbeginS.o crtendS.o libgcc.a libgcc_s.so libgcc_s.so.1 \
    Scrt1.o crti.o crtn.o libc.so libc_nonshared.a libc.so.6; do
    gcc -print-file-name=$name
done
gcc -O2 -M bench/guest/sample.c | tr ' ' '\n' | grep ^/
echo \"$PWD/bench/guest/sample.c:/src/sample.c\"",
};

static TAR: App = App { name: "tar", package: "tar", files: "command -v tar" };

/// Everything at home, with as many application cores as Linux has.
const LOCAL: &str = "local --app-cores 0-1 --kernel-cores 1";

const fn app(side: &'static str, place: Place, app: &'static App) -> Run {
    run(side, place, What::App(app)).cpus(2)
}

/// Both cases of each figure of the guest program.
macro_rules! cases {
    ($(($name:literal, $figure:literal)),* $(,)?) => {
        &[$(
            case(
                concat!($name, ", auto"),
                "ms",
                concat!("auto ", $figure),
                concat!("linux ", $figure),
                0.85,
            ),
            case(
                concat!($name, ", auto beside local"),
                "ms",
                concat!("auto ", $figure),
                concat!("local ", $figure),
                1.05,
            ),
            case(
                concat!($name, ", posted"),
                "ms",
                concat!("posted ", $figure),
                concat!("linux ", $figure),
                1.0,
            )
            .informs(),
            case(
                concat!($name, ", remote"),
                "ms",
                concat!("remote ", $figure),
                concat!("linux ", $figure),
                1.0,
            )
            .informs(),
        )*]
    };
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "apps",
    about: "ordinary programs from start to end: sqlite3, python3, gcc, tar",
    sources: &["bench/guest/apps.c"],
    runs: &[
        app("auto", Place::Ferry("auto"), &SQLITE3),
        app("local", Place::Ferry(LOCAL), &SQLITE3),
        app("posted", Place::Ferry("posted"), &SQLITE3),
        app("linux", Place::Peer(""), &SQLITE3),
        app("remote", Place::Ferry("remote"), &SQLITE3),
        app("auto", Place::Ferry("auto"), &PYTHON3),
        app("local", Place::Ferry(LOCAL), &PYTHON3),
        app("posted", Place::Ferry("posted"), &PYTHON3),
        app("linux", Place::Peer(""), &PYTHON3),
        app("remote", Place::Ferry("remote"), &PYTHON3),
        app("auto", Place::Ferry("auto"), &GCC),
        app("local", Place::Ferry(LOCAL), &GCC),
        app("posted", Place::Ferry("posted"), &GCC),
        app("linux", Place::Peer(""), &GCC),
        app("remote", Place::Ferry("remote"), &GCC),
        app("auto", Place::Ferry("auto"), &TAR),
        app("local", Place::Ferry(LOCAL), &TAR),
        app("posted", Place::Ferry("posted"), &TAR),
        app("linux", Place::Peer(""), &TAR),
        app("remote", Place::Ferry("remote"), &TAR),
    ],
    cases: cases![
        ("sqlite3", "sqlite3"),
        ("python3 -c pass", "python3_pass"),
        ("python3 -S -E -c pass", "python3_bare"),
        ("gcc -O2", "gcc"),
        ("tar -c", "tar_create"),
        ("tar -t", "tar_list"),
    ],
    ..Suite::EMPTY
};
