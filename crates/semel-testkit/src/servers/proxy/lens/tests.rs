use super::{Lens, Piece, Speaks};

/// What is heard, in the same pieces however it is cut: `(whole, text)` of each.
fn every_cut(session: &[(bool, &[u8])], make: fn() -> Lens) -> Vec<String> {
    let told = |size: usize| {
        let (mut lens, mut out) = (make(), Vec::new());
        for (is_client, bytes) in session {
            for piece in bytes.chunks(size) {
                if *is_client { lens.client(piece, &mut out) } else { lens.server(piece, &mut out) }
            }
        }
        out.iter().map(say).collect::<Vec<_>>()
    };
    let whole = told(usize::MAX);
    for size in 1..40 {
        assert_eq!(told(size), whole, "in pieces of {size}");
    }
    whole
}

fn say(piece: &Piece) -> String {
    let n = piece.bytes.len();
    match (piece.request(), piece.ends, piece.is_push) {
        (Some(r), ..) if r.executes => format!("runs [{}] {n}", r.statement),
        (Some(r), ..) => format!("asks [{}] {n}", r.statement),
        (None, true, _) => format!("end {n}"),
        (None, _, true) => format!("push {n}"),
        (None, ..) => format!("{n}"),
    }
}

#[test]
fn commands_and_replies_of_redis_end_where_they_end() {
    let session: &[(bool, &[u8])] = &[
        (true, b"*2\r\n$3\r\nGET\r\n$6\r\n*1\r\n$4\r\nPING\r\n"),
        (true, b"*1\r\n$4\r\nPING\r\n"),
        (false, b"$-1\r\n*-1\r\n*3\r\n:1\r\n$2\r\n\r\n\r\n*1\r\n+x\r\n>2\r\n+message\r\n+x\r\n-ERR no\r\n_\r\n"),
        (false, b"%1\r\n+a\r\n#t\r\n|1\r\n+ttl\r\n:1\r\n$1\r\na\r\n=5\r\ntxt:x\r\n"),
    ];
    let told = every_cut(session, || Lens::new(Speaks::Redis));
    let lengths = ["runs [] 25", "runs [] 6", "runs [] 14", "end 5", "end 5", "end 24", "push 18", "end 9", "end 3"];
    assert_eq!(told[..9], lengths);
    assert_eq!(told[9..], ["end 12", "end 21", "end 11"]);
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

#[test]
fn a_prepared_statement_of_postgresql_is_known_when_it_runs() {
    let startup = [&13_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes()[..], b"user\0"].concat();
    let encrypts = [8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat();
    let prepare = [message(b'P', b"s1\0UPDATE a\0\0\0"), message(b'D', b"Ss1\0"), message(b'S', b"")].concat();
    let run = [message(b'B', b"\0s1\0\0\0\0\0\0\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
    let ready = message(b'Z', b"I");
    let answer = [message(b'2', b""), message(b'C', b"UPDATE 1\0"), ready.clone()].concat();
    let notice = message(b'A', b"\0\0\0\x01c\0p\0");
    let session: &[(bool, &[u8])] = &[
        (true, &encrypts),
        (false, b"N"),
        (true, &startup),
        (false, &[message(b'R', &[0; 4]), ready.clone()].concat()),
        (true, &prepare),
        (false, &ready),
        (true, &run),
        (false, &answer),
        (true, &message(b'Q', b"SELECT 1\0")),
        (false, &notice),
        (false, &ready),
    ];
    let told = every_cut(session, || Lens::new(Speaks::Postgres));
    assert_eq!(told[..5], ["8", "1", "end 13", "9", "end 6"]);
    assert_eq!(
        told[5..],
        [
            "asks [UPDATE a] 33",
            "end 6",
            "runs [UPDATE a] 30",
            "5",
            "14",
            "end 6",
            "runs [SELECT 1] 14",
            "push 13",
            "end 6"
        ]
    );
}

fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], body].concat()
}

#[test]
fn a_prepared_statement_of_mysql_is_known_when_it_runs() {
    let session: &[(bool, &[u8])] = &[
        (false, &packet(0, b"\x0a10.11")),
        (true, &packet(1, b"who I am")),
        (false, &packet(2, &[0, 0, 0, 2, 0, 0, 0])),
        (true, &packet(0, b"\x16UPDATE a")),
        (false, &packet(1, &[0, 7, 0, 0, 0, 0, 0, 0, 0])),
        (true, &packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0")),
        (false, &packet(1, &[0, 1, 0, 2, 0, 0, 0])),
        (true, &packet(0, b"\x19\x07\0\0\0")),
        (true, &packet(0, b"\x03SELECT 1")),
    ];
    let told = every_cut(session, || Lens::new(Speaks::MySql));
    assert_eq!(
        told,
        [
            "end 10",
            "12",
            "end 11",
            "asks [UPDATE a] 13",
            "end 13",
            "runs [UPDATE a] 14",
            "end 11",
            "asks [] 9",
            "runs [SELECT 1] 13"
        ]
    );
}
