// SPDX-License-Identifier: MIT
//! The recorder in programs that make it hard: killed at any instruction, without descriptors, disk or
//! stderr, and on after `mallow record` has ended.

mod recording;

use std::fs;
use std::process::{Command, Stdio};

use recording::{mallow, program, record, recorder, scratch, Recorded};

/// Steps through a child that records: what its file says after each instruction is what would be
/// there if that had been its last.
#[test]
fn whenever_a_process_is_killed_no_record_is_counted_that_is_not_there() {
    let code = r#"
int main(void) {
    const pid_t pid = fork();
    if (pid == 0) {
        free(malloc(60));
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (;;) free(malloc(61));
    }
    int status = 0;
    char path[4096];
    waitpid(pid, &status, 0);
    snprintf(path, sizeof path, "%s.%d.trace", getenv("MW_RECORD"), pid);
    const volatile unsigned long *header =
        mmap(NULL, 4096, PROT_READ, MAP_SHARED, open(path, O_RDONLY), 0);
    if (header == MAP_FAILED) return 3;
    unsigned long whole = header[3], bytes = header[2];
    const unsigned long first = whole;
    int result = 0;
    for (int i = 0; i < 20000 && whole < first + 6 && result == 0; i++) {
        ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
        waitpid(pid, &status, 0);
        whole += header[2] != bytes;
        bytes = header[2];
        result = header[3] > whole;
    }
    kill(pid, SIGKILL);
    return result != 0 ? 1 : whole < first + 6 ? 2 : 0;
}"#;
    let run = record("stepped", &[program("stepped", code).to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
}

/// What a child knew of its parent's blocks would be wrong after a cut, and so would be their sizes.
#[test]
fn a_child_of_a_process_whose_trace_was_cut_takes_no_block_for_another() {
    let code = r#"
enum { COUNT = 2000 };
int main(void) {
    static char *blocks[COUNT];
    const struct rlimit limit = {400000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < COUNT; i++) blocks[i] = malloc(100000);
    for (int i = 0; i < 200000; i++) free(malloc(55)); // cut
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
    static char *kept[100];
    for (int i = 0; i < 100; i++) kept[i] = malloc(3000);
    const pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < COUNT; i++) {
            if (malloc_usable_size(malloc(40 + i)) != 40 + i) _exit(1);
        }
        for (int i = 0; i < 100; i++) {
            if (malloc_usable_size(kept[i]) > 3016) _exit(2);
        }
        free(kept[0]);
        _exit(0);
    }
    int status = 9;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}"#;
    let run = record("cut", &[program("cut", code).to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
    let child = run
        .traces
        .iter()
        .find(|trace| trace.head.contains("forked"));
    let child = child.unwrap();
    assert_eq!(child.sizes().len(), 2000);
    assert_eq!((child.count("allocate"), child.count("unknown")), (2000, 1));
}

/// Peaks by the records themselves, to be found in the head.
fn assert_head_is_true(trace: &Recorded) {
    let (mut blocks, mut peak, mut given) = (0, 0, 0);
    for line in &trace.lines {
        match line.split(' ').next() {
            Some("allocate") => (blocks, given) = (blocks + 1, given + 1),
            Some("free") => blocks -= 1,
            _ => {}
        }
        peak = peak.max(blocks);
    }
    for figure in [
        format!(" {given} blocks,"),
        format!("most live {peak} blocks,"),
    ] {
        assert!(trace.head.contains(&figure), "{figure} {}", trace.head);
    }
}

#[test]
fn a_block_that_is_being_resized_counts_as_live() {
    let code = r#"
static volatile int moving;
static void *other(void *nothing) {
    void *blocks[50];
    while (!moving) sched_yield();
    usleep(3000);
    for (int i = 0; i < 50; i++) blocks[i] = malloc(100);
    for (int i = 0; i < 50; i++) free(blocks[i]);
    return NULL;
}
int main(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 30); // moved by a copy, which takes its time
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    char *block = malloc(128 << 20);
    memset(block, 1, 128 << 20);
    void *wall = malloc(64);
    moving = 1;
    block = realloc(block, 129 << 20);
    pthread_join(thread, NULL);
    free(block);
    free(wall);
    return 0;
}"#;
    let run = record("resizing", &[program("resizing", code).to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
    assert_head_is_true(&run.traces[0]);
}

#[test]
fn a_trace_that_is_cut_while_a_child_inherits_knows_what_it_has() {
    let code = r#"
int main(void) {
    for (int i = 0; i < 200000; i++) malloc(10);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {300000, 300000};
        setrlimit(RLIMIT_FSIZE, &limit);
        malloc(11);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    return 0;
}"#;
    let run = record("half", &[program("half", code).to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
    let child = run.traces.iter().find(|trace| trace.head.contains("CUT"));
    assert!(child.unwrap().lines.len() > 10_000);
    assert_head_is_true(child.unwrap());
}

#[test]
fn a_program_that_has_closed_all_files_gets_the_lowest_numbers() {
    let code = r#"
int main(void) {
    free(malloc(1));
    for (int i = 0; i < 4096; i++) close(i);
    for (int i = 0; i < 300000; i++) free(malloc(42)); // more than one window
    return open("/dev/null", O_RDWR) == 0 && open("/dev/null", O_RDWR) == 1 ? 0 : 1;
}"#;
    let path = program("lowest", code);
    for limit in ["4096", "100"] {
        let script = format!("ulimit -n {limit}; exec {}", path.display());
        let run = record("lowest", &["sh", "-c", &script]);
        assert_eq!(run.output.status.code(), Some(0), "{limit}");
        assert_eq!(run.with(42)[0].count("allocate"), 300_001, "{limit}");
    }
}

/// The recorder opens its file again in a call of `malloc`, which is no place for a thread to end.
#[test]
fn a_thread_that_is_cancelled_does_not_end_in_a_call_of_the_allocator() {
    let code = r#"
int main(void);
static void *cancelled(void *nothing) {
    pthread_cancel(pthread_self());
    for (int i = 0; i < 300000; i++) free(malloc(42)); // more than one window
    return main;
}
int main(void) {
    void *result;
    pthread_t thread;
    free(malloc(1));
    for (int i = 0; i < 4096; i++) close(i);
    alarm(20); // the lock of a thread that has ended stays taken
    pthread_create(&thread, NULL, cancelled, NULL);
    pthread_join(thread, &result);
    free(malloc(43));
    return result != main;
}"#;
    let run = record("cancelled", &[program("cancelled", code).to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
    let sizes = run.with(43)[0].sizes();
    assert_eq!(sizes.iter().filter(|&&size| size == 42).count(), 300_000);
}

/// A process that `mallow record` does not see by its number: a child that shares the memory of one that
/// has ended. So is one in a PID namespace.
#[test]
fn the_file_of_a_process_that_goes_on_is_left_alone() {
    let code = r#"
static char stack[65536];
static int child(void *folder) {
    char path[4096];
    for (int i = 0; i < 3; i++) close(i);
    snprintf(path, sizeof path, "%s/go", folder);
    for (int i = 0; i < 3000 && access(path, F_OK) != 0; i++) usleep(10000);
    for (int i = 0; i < 100000; i++) free(malloc(42));
    snprintf(path, sizeof path, "%s/done", folder);
    close(creat(path, 0600));
    _exit(0);
}
int main(int count, char **words) {
    free(malloc(1));
    clone(child, stack + sizeof stack, CLONE_VM, words[1]);
    _exit(0);
}"#;
    let folder = scratch().join("goes-on");
    fs::create_dir_all(&folder).unwrap();
    let path = program("survivor", code);
    let run = record(
        "survivor",
        &[path.to_str().unwrap(), folder.to_str().unwrap()],
    );
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
    fs::write(folder.join("go"), "").unwrap();
    let done = || folder.join("done").exists();
    let mut tries = 0..3000;
    while !done() && tries.next().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(done());
}

/// As a debugger or a clean-up that is started in an emergency.
#[test]
fn a_signal_handler_may_fork_whatever_it_has_interrupted() {
    let code = r#"
#include <sys/time.h>
static volatile int count, due = 1;
static pid_t first;
static void handler(int signal) {
    if (getpid() != first) return;
    const pid_t pid = fork();
    due = 1;
    if (pid == 0 && count % 2 == 0) _exit(0);
    if (pid == 0) return; // the interrupted call goes on in the child
    while (waitpid(pid, NULL, 0) < 0) {}
    count++;
}
int main(void) {
    first = getpid();
    signal(SIGALRM, handler);
    while (count < 100 && getpid() == first) {
        if (due) {
            const struct itimerval once = {{0, 0}, {0, 50 + count}};
            due = 0;
            setitimer(ITIMER_REAL, &once, NULL);
        }
        free(malloc(42));
    }
    if (getpid() != first) {
        for (int i = 0; i < 10; i++) free(malloc(43));
        _exit(0);
    }
    return 0;
}"#;
    let path = program("handler-forks", code);
    let words = ["timeout", "60", path.to_str().unwrap()];
    let run = record("handler-forks", &words); // reads every trace
    assert_eq!(run.output.status.code(), Some(0));
    assert_eq!(run.with(43).len(), 50);
}

#[test]
fn a_forked_childs_threads_are_its_own() {
    let code = r#"
static void *quick(void *size) { free(malloc((size_t)size)); return NULL; }
static void other(size_t size) {
    pthread_t thread;
    pthread_create(&thread, NULL, quick, (void *)size);
    pthread_join(thread, NULL);
}
static void *forks(void *unused) {
    const pid_t pid = fork();
    if (pid == 0) { free(malloc(44)); other(45); _exit(0); }
    waitpid(pid, NULL, 0);
    return NULL;
}
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 4; i++) other(42);
    pthread_create(&thread, NULL, forks, NULL);
    pthread_join(thread, NULL);
    return 0;
}"#;
    let run = record("threads", &[program("threads", code).to_str().unwrap()]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let child = run.with(45)[0];
    assert!(child.head.contains(" 2 threads"), "{}", child.head);
    let path = scratch().join("threads-traces").join(&child.name);
    let second = mallow(&["trace", "--thread", "1", path.to_str().unwrap()]);
    let second = String::from_utf8_lossy(&second.stdout).into_owned();
    assert!(second.contains(" 45\n"), "{second}");
}

#[test]
fn what_the_recorder_has_to_say_does_no_harm() {
    // Its stderr is a file, and the limit of a file's size what there is to tell of; or nobody reads.
    let said = scratch().join("said");
    for output in [said.to_str().unwrap(), ">(sleep 0)"] {
        let script = format!("ulimit -f 0; sleep 0.2; exec ls -d / 2>{output}");
        let script = script.replace("2>>", "2> >");
        let run = record("harmless", &["bash", "-c", &script]);
        assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
        assert_eq!(run.output.stdout, b"/\n");
    }
    // Its stderr is closed, and the program's own file has the number.
    let code = r#"
int main(int count, char **words) {
    free(malloc(1));
    close(2);
    if (open(words[1], O_RDWR | O_CREAT | O_TRUNC, 0600) != 2) return 1;
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {0, RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        free(malloc(1));
        _exit(0);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    struct stat file;
    return status != 0 || fstat(2, &file) != 0 || file.st_size != 0;
}"#;
    let path = program("own-file", code);
    let file = scratch().join("own-file.data");
    let run = record(
        "own-file",
        &[path.to_str().unwrap(), file.to_str().unwrap()],
    );
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
}

#[test]
fn what_was_refused_once_leaves_no_empty_traces_behind() {
    let code = r#"
static void child(rlim_t most, int more) {
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {most, RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        free(malloc(1));
        if (more) child(RLIM_INFINITY, 0);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
int main(void) {
    free(malloc(71));
    child(0, 1);
    return 0;
}"#;
    let run = record("refused", &[program("refused", code).to_str().unwrap()]);
    assert_eq!(run.output.status.code(), Some(0), "{:?}", run.output);
    assert_eq!(run.traces.len(), 1);
    let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
    assert_eq!(said.matches("nothing is recorded").count(), 1, "{said}");
}

/// A command in the background of a script ignores interrupts; so it does when it is recorded.
#[test]
fn an_ignored_interrupt_stays_ignored() {
    let prefix = scratch().join("ignored");
    let script = format!(
        "trap '' INT; exec {} record -o {} --recorder {} -- sh -c 'kill -INT $$; echo on'",
        env!("CARGO_BIN_EXE_mallow"),
        prefix.display(),
        recorder().display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"on\n");
}

/// A service manager's SIGPIPE, say; and the end of a command is seen though SIGCHLD is ignored.
#[test]
fn other_ignored_signals_stay_ignored() {
    let prefix = scratch().join("ignored-others");
    let script = format!(
        "trap '' PIPE CHLD; exec {} record -o {} --recorder {} -- sh -c 'kill -PIPE $$; echo on; exit 3'",
        env!("CARGO_BIN_EXE_mallow"),
        prefix.display(),
        recorder().display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"on\n");
}

/// Who ends the recorder by its number, as a supervisor does, ends the command, which may clear up.
#[test]
fn a_signal_to_the_recorder_is_the_commands() {
    let ready = scratch().join("passed-on-ready");
    let prefix = scratch().join("passed-on");
    let script = format!(
        "trap 'echo cleared; exit 7' TERM; : >{}; while :; do sleep 0.01; done",
        ready.display()
    );
    let mut words = vec!["record", "-o", prefix.to_str().unwrap()];
    words.extend([
        "--recorder",
        recorder().to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let tool = Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(&words)
        .env_remove("LD_PRELOAD")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !ready.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // SAFETY: a child of ours.
    unsafe { libc::kill(tool.id() as i32, libc::SIGTERM) };
    let output = tool.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(output.stdout, b"cleared\n");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("most live"),
        "{output:?}"
    );
}
