//! Servers that misbehave: messages in both directions are bounded, and no such server gets the password.

use std::net::{IpAddr, UdpSocket};

use pg::{ConnectOptions, ReadError, ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use testkit::poll;

use super::*;

fn target(server: &FakeServer, host: &str, options: &str) -> ConnectOptions {
    let (port, password) = (server.port(), FakeServer::PASSWORD);
    ConnectOptions::parse(&format!("postgresql://me:{password}@{host}:{port}/db?connect_timeout=20&{options}")).unwrap()
}

/// Long enough to start a session, which then says nothing.
const SOON: Duration = Duration::from_secs(2);

/// A reader that has given up its one read.
async fn given_up(target: ConnectOptions, deadline: Duration) -> (Reader, ReadError) {
    let limits = ReadLimits { deadline, ..ReadLimits::default() };
    let reader = Reader::new(target, &SearchPath::default(), limits);
    let error = reader.read(&ReadRequest::new("select 1", &[], RowFormat::Array)).await.unwrap_err();
    (reader, error)
}

/// What a server is told that is not let in.
async fn refusal(target: ConnectOptions) -> String {
    given_up(target, Duration::from_secs(30)).await.1.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_does_not_stop_is_cancelled_a_few_times_and_not_for_ever() {
    // M2
    let (silent, keyless) =
        tokio::join!(FakeServer::start(Misbehaviour::SaysNothing), FakeServer::start(Misbehaviour::HasNoKeys));
    let given_up = tokio::join!(
        given_up(target(&silent, "127.0.0.1", "sslmode=disable"), SOON),
        given_up(target(&keyless, "127.0.0.1", "sslmode=disable"), SOON)
    );
    let ((reader, _), (keyless_reader, _)) = &given_up;
    // Until each is given up.
    tokio::join!(reader.drain(), keyless_reader.drain());
    let cancels = silent.cancels();
    assert!((5..=20).contains(&cancels), "M2: {cancels}");
    assert_eq!(keyless.cancels(), 0, "M2");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_to_a_cancel_request_are_discarded() {
    // M1
    let server = FakeServer::start(Misbehaviour::AnswersCancels).await;
    let (reader, _) = given_up(target(&server, "127.0.0.1", "sslmode=disable"), SOON).await;
    reader.drain().await;
    // As often as a request can fail, and each connection has buffers.
    assert_eq!(server.cancels(), 3, "M1");
    let taken = server.bytes_taken();
    assert!(taken < 64 << 20, "M1: {taken} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_sends_no_password_after_scram() {
    // L4
    let server = FakeServer::start(Misbehaviour::AsksAfterScram).await;
    let said = refusal(target(&server, "127.0.0.1", "sslmode=disable")).await;
    assert!(said.contains("asks once more after SCRAM"), "L4: {said}");
    assert_eq!(server.passwords(), [""; 0], "L4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_password_is_sent_only_encrypted_or_when_allowed_explicitly() {
    // L2
    let server = FakeServer::start(Misbehaviour::AsksInClear).await;
    // This machine's own address: nothing is sent to find it.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own: IpAddr = match socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        // A machine without a network has nowhere to send it to.
        _ => return,
    };
    let own = own.to_string();
    for options in ["", "sslmode=disable", "require_auth=!scram-sha-256"] {
        let said = refusal(target(&server, &own, options)).await;
        assert!(said.contains("is not encrypted"), "L2, {options}: {said}");
        assert_eq!(server.passwords(), [""; 0], "L2, {options}");
    }
    tokio::join!(
        given_up(target(&server, "127.0.0.1", ""), SOON),
        given_up(target(&server, &own, "require_auth=password"), SOON)
    );
    poll::until("both have sent it", async || server.passwords() == [FakeServer::PASSWORD; 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_scram_iterations_and_protocol_versions_are_named() {
    // L13
    let server = FakeServer::start(Misbehaviour::Iterations(200_000)).await;
    let said = refusal(target(&server, "127.0.0.1", "")).await;
    assert!(said.contains("200000 iterations of SCRAM") && said.contains("100000"), "L13: {said}");
    // L14
    let server = FakeServer::start(Misbehaviour::Negotiates).await;
    let said = refusal(target(&server, "127.0.0.1", "")).await;
    assert!(said.contains("version 3.0 of the protocol"), "L14: {said}");
}
