//! The progress bar of `semel prove`: on a terminal, and only there.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    process::{Command, Output, Stdio},
};

use rustix::{
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::{endpoints::Endpoint, semel::command};

/// A terminal of 80 columns, as the one who looks at it and as the one who writes to it have it.
fn terminal() -> (File, OwnedFd) {
    let looks = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    unlockpt(&looks).expect("it is ours");
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&looks, size).expect("it has a size");
    let writes = ioctl_tiocgptpeer(&looks, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("its other end");
    (looks.into(), writes)
}

/// Runs it with a terminal for its errors; what the terminal was sent comes beside what it wrote to its output.
fn on_a_terminal(mut command: Command) -> (String, Output) {
    let (mut looks, writes) = terminal();
    let child = command.env("TERM", "xterm").stdout(Stdio::piped()).stderr(writes).spawn().expect("the binary runs");
    // With it goes our copy of the end that is written to: it ends with the child.
    drop(command);
    let looking = std::thread::spawn(move || {
        let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
        // A terminal whose other end is gone is an error.
        while let Ok(n @ 1..) = looks.read(&mut piece) {
            seen.extend_from_slice(&piece[..n]);
        }
        String::from_utf8(seen).expect("semel writes UTF-8")
    });
    let output = child.wait_with_output().expect("a child ends");
    (looking.join().expect("it looks on"), output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bar_counts_copies_on_a_terminal_and_is_gone_at_the_end() {
    let shop = Endpoint::start().await;
    let url = shop.url("/slow");
    let args = ["prove", &url, "--json", "--rounds=3", "--concurrency=20", "--ramp=0"].map(str::to_owned);
    let run = move || on_a_terminal(command(&args.each_ref().map(String::as_str)));
    let (seen, output) = tokio::task::spawn_blocking(run).await.expect("the thread ends");
    let drawn: Vec<u64> = seen
        .match_indices(" of 60 copies")
        .map(|(at, _)| seen[..at].rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{seen:?}")))
        .collect();
    assert!(drawn.last().is_some_and(|last| (1..=60).contains(last)) && drawn.is_sorted(), "{drawn:?}: {seen:?}");
    assert!(seen.contains('█') && seen.contains('░'), "a bar: {seen:?}");
    // What is drawn last is nothing: the line is cleared.
    let (_, rest) = seen.rsplit_once("left").expect("how long it takes is told");
    assert!(rest.contains("\x1b[2K"), "{rest:?}");
    let out = String::from_utf8(output.stdout).expect("semel writes UTF-8");
    assert!(!out.contains('\x1b'), "{out}");
    let json: serde_json::Value = serde_json::from_str(&out).expect("the result alone");
    assert_eq!((json["verdict"].as_str(), output.status.code()), (Some("safe"), Some(0)), "{json}");
}
