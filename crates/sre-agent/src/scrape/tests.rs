//! Against a real socket that answers as broken exporters do.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(5);

async fn scrape(answer: Vec<u8>) -> Telemetry {
    scrape_within(answer, LIMIT, false).await
}

async fn scrape_within(answer: Vec<u8>, limit: Duration, hang: bool) -> Telemetry {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0_u8; 1024];
        let read = stream.read(&mut request).await.unwrap();
        assert!(request[..read].starts_with(b"GET /metrics HTTP/1.1\r\n"));
        // The client may hang up in the middle of too much.
        let _ = stream.write_all(&answer).await;
        if hang {
            std::future::pending::<()>().await;
        }
    };
    let client = one(
        Target {
            ip: address.ip(),
            port: address.port(),
        },
        limit,
    );
    tokio::pin!(client);
    tokio::select! {
        got = &mut client => got,
        () = server => client.await,
    }
}

fn http(body: &[u8]) -> Vec<u8> {
    [
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(),
        body,
    ]
    .concat()
}

fn cause(telemetry: Telemetry) -> String {
    match telemetry {
        Telemetry::Good(sample) => panic!("good: {sample:?}"),
        Telemetry::Unreachable(cause) => format!("unreachable: {cause}"),
        Telemetry::Malformed(cause) => format!("malformed: {cause}"),
    }
}

#[tokio::test]
async fn a_good_answer_whole_or_in_chunks_or_up_to_the_end_of_the_connection() {
    let body = b"# HELP x\nDCGM_FI_DEV_XID_ERRORS{UUID=\"GPU-a\"} 79\n";
    let chunked = [
        &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n"[..],
        &body[..16],
        b"\r\n",
    ]
    .concat();
    let rest = [
        format!("{:x}\r\n", body.len() - 16).as_bytes(),
        &body[16..],
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    let until_close = [&b"HTTP/1.0 200 OK\r\n\r\n"[..], body].concat();
    for answer in [http(body), [chunked, rest].concat(), until_close] {
        match scrape(answer).await {
            Telemetry::Good(sample) => assert_eq!(sample.gpus["GPU-a"].xid, Some(79)),
            other @ (Telemetry::Unreachable(_) | Telemetry::Malformed(_)) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn broken_answers_are_named_and_never_a_sample() {
    let row = b"DCGM_FI_DEV_XID_ERRORS{UUID=\"GPU-a\"} 79\n";
    let huge = row.repeat(MAX_BODY / row.len() + 2);
    let mut short = http(row);
    short.truncate(short.len() - 8);
    let cases: [(Vec<u8>, &str); 8] = [
        (short, "malformed: the answer is cut off"),
        (
            [&b"HTTP/1.0 200 OK\r\n\r\n"[..], &row[..20]].concat(),
            "malformed: the answer is cut off in the middle of a line",
        ),
        (http(&huge), "malformed: the answer is larger than 8 MiB"),
        (
            http(&vec![0xff; 100_000]),
            "malformed: the answer has a line of more than 64 KiB",
        ),
        (
            http(b"\x00\xff\x00\n"),
            "malformed: the answer is not Prometheus text",
        ),
        (
            b"\x7fELF\x02\x01\x01 garbage\n\n".to_vec(),
            "malformed: the exporter does not speak HTTP",
        ),
        (
            b"HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec(),
            "malformed: the exporter answered HTTP 503",
        ),
        (
            Vec::new(),
            "unreachable: the exporter closed the connection without an answer",
        ),
    ];
    for (answer, want) in cases {
        assert_eq!(cause(scrape(answer).await), want);
    }
}

#[tokio::test]
async fn a_slow_answer_ends_in_time() {
    let started = tokio::time::Instant::now();
    let got = scrape_within(
        http(b"a 1\n")[..20].to_vec(),
        Duration::from_millis(200),
        true,
    )
    .await;
    assert!(cause(got).starts_with("unreachable: the exporter did not answer within"));
    assert!(started.elapsed() < LIMIT);
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let got = one(
        Target {
            ip: address.ip(),
            port: address.port(),
        },
        LIMIT,
    )
    .await;
    assert_eq!(cause(got), "unreachable: the exporter refuses connections");
}
