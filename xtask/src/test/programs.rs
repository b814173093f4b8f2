//! Programs of every Debian machine, run on the whole of this machine (`--root host`) and packed with
//! what they need: they have to say what they say on this machine's Linux.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Bench;
use super::boot::Configuration;
use super::run::Check;
use crate::process;

/// The checks.
pub const CHECKS: &[(&str, Check)] = &[
    ("shell-and-tools-of-the-host", shell_and_tools),
    ("perl-of-the-host", perl),
    ("a-package", a_package),
    ("behind-a-shim", behind_a_shim),
];

/// What one run may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// One core, and two with the paths that differ most.
const CONFIGURATIONS: [Configuration; 3] = [
    Configuration::new(1, "local"),
    Configuration::new(2, "posted"),
    Configuration::new(2, "auto"),
];

/// Job control, pipelines, substitutions, traps, archives and searches, in an empty directory.
const SHELL: &str = r#"
set -e; d=$(mktemp -d); cd "$d"
mkdir -p a/b/c; for i in {1..60}; do seq $i 200 > a/b/$i; done; ln -s b a/l; ln a/b/1 a/h
find a -type f -links 1 -newer /etc/hostname -print0 | sort -z | xargs -0 -P2 -n7 cat | wc
grep -rl '^57$' a/b | sed 's,.*/,,' | sort -n | paste -sd, | cut -c1-60
tar -cf - a | gzip -n | tee t.gz | gzip -dc | tar -xf - -C . --one-top-level=x
diff -r a/b x/a/b && stat -c '%h %F' x/a/h x/a/l; awk '{s+=$1} END {print s}' a/b/[0-9]*
set +e; mkfifo f; (sort -rn f | head -2) & seq 9 > f; wait
trap 'echo caught' USR1; kill -USR1 $BASHPID; (exit 7); echo $?; sleep 50 & kill %1; wait $!; echo $?
diff <(echo 1) <(echo 2); timeout -s INT 0.2 sleep 50; echo $?; exec 7<>g; echo to >&7; cat g
(cd /proc/self && [ -e exe ] && echo exe)
ulimit -n 20; exec 19>&1; (exec 20>&1) 2>/dev/null || echo limit; ls -d /dev/fd/19; umask 027; > u; stat -c %a u
cd /; rm -r "$d"; [ ! -e "$d" ] && echo gone
"#;

/// Processes, pipes, signals, local sockets, locks and time, by perl's own modules.
const PERL: &str = r#"
use strict; use POSIX; use Socket; use IPC::Open3; use Fcntl qw(:flock SEEK_SET); $| = 1;
pipe(my $r, my $w); my $p = fork // die; if (!$p) { syswrite $w, "child"; POSIX::_exit(3) }
close $w; sysread $r, my $t, 9; waitpid $p, 0; print "$t ", $? >> 8, "\n";
my $rang = 0; local $SIG{ALRM} = sub { $rang = 1 }; alarm 1; select undef, undef, undef, 0.05 until $rang; print "alarm\n";
my $set = POSIX::SigSet->new(SIGUSR1); local $SIG{USR1} = sub { print "usr1\n" };
sigprocmask(SIG_BLOCK, $set); kill USR1 => $$; print "blocked\n"; sigprocmask(SIG_UNBLOCK, $set);
socketpair my $a, my $b, AF_UNIX, SOCK_STREAM, 0; syswrite $a, "x" x 1000; shutdown $a, 1;
my $n = 0; while (my $got = sysread $b, my $s, 300) { $n += $got } print "$n\n";
my $v = ''; vec($v, fileno $b, 1) = 1; print select($v, undef, undef, 0), "\n";
my $pid = open3(my $in, my $out, undef, 'tr', 'a-z', 'A-Z'); print $in "hello\n"; close $in; print <$out>; waitpid $pid, 0;
open my $f, '+>', "/tmp/perl.$$" or die; flock $f, LOCK_EX; my $c = fork; if (!$c) {
open my $g, '<', "/tmp/perl." . getppid or die; POSIX::_exit(flock($g, LOCK_EX | LOCK_NB) ? 1 : 0) }
waitpid $c, 0; print "locked $?\n"; print $f "line\n" x 3; seek $f, 0, SEEK_SET; my @l = <$f>; print scalar @l, "\n";
truncate $f, 4; print -s $f, "\n"; unlink "/tmp/perl.$$"; my @g = getpwuid 0; print "$g[0]\n"; print strftime('%F', gmtime 0), "\n";
my @k; for my $i (1 .. 5) { my $k = fork; POSIX::_exit($i) if !$k; push @k, $k } my $s = 0; for (@k) { waitpid $_, 0; $s += $? >> 8 } print "$s\n";
print ttyname(0) // 'no terminal', "\n"; exec 'sh', '-c', 'kill -TERM $$';
"#;

/// Runs a program of the host in each configuration; it has to say and end as here.
fn same_as_here(bench: &Bench, program: &[&str]) -> Result<()> {
    let mut here = Command::new(program[0]);
    here.args(&program[1..]).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    let expected = process::run(&mut here, b"", DEADLINE)?;
    for configuration in CONFIGURATIONS {
        let options = ["--root", "host", "--env", "PATH=/usr/bin:/bin", "--env", "LC_ALL=C"];
        let boot = bench.ferry.boot("run", configuration, &options, program, b"", DEADLINE)?;
        let contained = boot.contained_panics();
        ensure!(contained.is_empty(), "handlers panicked: {contained:?}");
        let (got, name) = (&boot.finished, configuration.name());
        ensure!(
            got.stdout == expected.stdout && got.status == expected.status,
            "{name}: status {}, output {:?}; on this machine {}, {:?}\n{}",
            got.status,
            got.stdout,
            expected.status,
            expected.stdout,
            boot.describe_machine()
        );
    }
    Ok(())
}

fn shell_and_tools(bench: &Bench) -> Result<()> {
    same_as_here(bench, &["/bin/bash", "-c", SHELL])
}

fn perl(bench: &Bench) -> Result<()> {
    same_as_here(bench, &["/usr/bin/perl", "-e", PERL])
}

/// Boots with options; the program has to end with status 0 and say this.
fn expect(bench: &Bench, options: &[&str], program: &[&str], output: &str) -> Result<()> {
    let boot = bench.ferry.boot("run", CONFIGURATIONS[2], options, program, b"", DEADLINE)?;
    let got = &boot.finished;
    ensure!(
        got.status == 0 && got.stdout == output,
        "status {}, output {:?}\n{}",
        got.status,
        got.stdout,
        boot.describe_machine()
    );
    Ok(())
}

/// A package brings the modules that its interpreter reads.
fn a_package(bench: &Bench) -> Result<()> {
    let program = ["/usr/bin/perl", "-MPOSIX", "-e", "print POSIX::floor(42.5), qq(\\n)"];
    expect(bench, &["--package", "perl-base"], &program, "42\n")?;
    let mut command = Command::new(&bench.ferry.tool);
    command.args(["run", "--package", "no-such-package", "--", "busybox", "true"]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    let told = finished.stderr.contains("no-such-package");
    ensure!(!finished.succeeded() && told, "{}", finished.describe());
    Ok(())
}

/// What a version manager's shim stands for is packed and run.
fn behind_a_shim(bench: &Bench) -> Result<()> {
    let root = bench.work.join("manager");
    let script = |name: &str, text: String| -> Result<String> {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(path.to_string_lossy().into_owned())
    };
    let real = script("versions/tool", "#!/bin/sh\necho the tool \"$@\"\n".to_string())?;
    script("libexec/pyenv", format!("#!/bin/sh\n[ \"$*\" = 'which tool' ] && echo '{real}'\n"))?;
    let shim = script("shims/tool", "#!/bin/sh\necho the shim; exit 1\n".to_string())?;
    expect(bench, &[], &[&shim, "runs"], "the tool runs\n")
}
