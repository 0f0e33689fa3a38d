// SPDX-License-Identifier: MIT
//! `mallow pool page`: a configuration changed on a page of the browser's, each change planned by the
//! library. The page asks this program, so what it shows is what `mallow pool plan` prints.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::config::{presets, Config};
use super::plan::{render, snippet};
use crate::Failure;

const PAGE: &str = include_str!("page.html");
const PRESET_BYTES: usize = 1 << 20;
const LINE_BYTES_MAX: u64 = 8 << 10;
const HEADER_LINES_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("page")
        .about("Serves a page on which a pool is configured, to this machine alone, until it is interrupted")
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .help("The port on 127.0.0.1 [default: one that is free]")
                .default_value("0")
                .hide_default_value(true)
                .allow_negative_numbers(true) // to be named, as any bad value
                .value_parser(clap::value_parser!(u16)),
        )
}

/// What is asked, as far as it counts here.
struct Request {
    start: String,
    host: String,
    body: String,
}

/// Status line's end, content type and body.
type Answer = (&'static str, &'static str, String);

fn told(status: &'static str, text: impl Into<String>) -> Answer {
    (status, "text/plain; charset=utf-8", text.into())
}

fn read_line(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    input.take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end().to_string())
}

/// The request; an answer at once where it is none of ours.
fn read_request(input: &mut impl BufRead) -> io::Result<Result<Request, Answer>> {
    let start = read_line(input)?;
    let (mut host, mut length) = (String::new(), 0);
    for number in 0.. {
        let line = read_line(input)?;
        if line.is_empty() {
            break;
        }
        if number == HEADER_LINES_MAX {
            return Ok(Err(told("431 Request Header Fields Too Large", "")));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "host" => host = value.trim().to_string(),
            "content-length" => length = value.trim().parse().unwrap_or(usize::MAX),
            _ => {}
        }
    }
    if length > BODY_BYTES_MAX {
        return Ok(Err(told(
            "413 Content Too Large",
            "no such configuration is needed\n",
        )));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Ok(Request {
        start,
        host,
        body: String::from_utf8_lossy(&body).into_owned(),
    }))
}

/// The page, with the presets as texts in it.
fn page() -> String {
    let options: Vec<String> = presets()
        .into_iter()
        .map(|preset| {
            let config = Config {
                classes: preset.classes,
                pool_bytes: PRESET_BYTES,
                ..Config::default()
            };
            let text = config.brought_in().text(&preset.text);
            format!(
                "<option value=\"{}\">{}</option>",
                escaped(&text),
                preset.name
            )
        })
        .collect();
    PAGE.replace("<!-- presets -->", &options.join("\n"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('\n', "&#10;")
}

fn plan(text: &str) -> Answer {
    match Config::parse_and_plan("line", text, None) {
        Ok((config, plan, classes)) => told(
            "200 OK",
            format!("{}\n{}", render(&config, &plan, &classes), snippet(&config)),
        ),
        Err(why) => told("422 Unprocessable Content", format!("{why}\n")),
    }
}

fn answer(request: &Request) -> Answer {
    // A page of another origin whose name leads here is not to ask.
    let name = request
        .host
        .rsplit_once(':')
        .map_or(request.host.as_str(), |(name, _)| name);
    if !matches!(name, "127.0.0.1" | "localhost") {
        return told("403 Forbidden", "this page is for this machine\n");
    }
    let mut words = request.start.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some("/")) => ("200 OK", "text/html; charset=utf-8", page()),
        (Some("POST"), Some("/plan")) => plan(&request.body),
        _ => told("404 Not Found", "there is /, and /plan to post to\n"),
    }
}

fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut input = BufReader::new(&stream);
    let (status, kind, body) = match read_request(&mut input)? {
        Ok(request) => answer(&request),
        Err(refusal) => refusal,
    };
    write!(
        &stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Serves until the program is ended.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let port = *matches.get_one::<u16>("port").expect("has a default");
    let failed = |what: &str, e: io::Error| Failure::tool(format!("{what} 127.0.0.1:{port}: {e}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|e| failed("cannot listen at", e))?;
    let address = listener
        .local_addr()
        .map_err(|e| failed("cannot listen at", e))?;
    println!("http://{address}/");
    for stream in listener.incoming() {
        // Browsers open connections that they do not use yet, and none is to wait for these. One that
        // goes away in the middle is no concern of ours.
        std::thread::spawn(|| stream.and_then(serve));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start: &str, host: &str, body: &str) -> Request {
        Request {
            start: start.into(),
            host: host.into(),
            body: body.into(),
        }
    }

    #[test]
    fn every_preset_on_the_page_is_a_configuration_that_can_be() {
        let html = page();
        for preset in presets() {
            assert!(html.contains(&format!(">{}</option>", preset.name)));
            let config = Config {
                classes: preset.classes,
                pool_bytes: PRESET_BYTES,
                ..Config::default()
            };
            let (status, _, body) = plan(&config.brought_in().text(&preset.text));
            assert_eq!(status, "200 OK", "{body}");
        }
        assert!(!html.contains("<!-- presets -->"));
    }

    #[test]
    fn only_this_machine_by_its_own_names_is_answered() {
        for (host, status) in [
            ("127.0.0.1:80", "200 OK"),
            ("localhost:8080", "200 OK"),
            ("localhost", "200 OK"),
            ("example.org", "403 Forbidden"),
            ("", "403 Forbidden"),
        ] {
            assert_eq!(
                answer(&request("GET / HTTP/1.1", host, "")).0,
                status,
                "{host}"
            );
        }
        let elsewhere = answer(&request("GET /etc/passwd HTTP/1.1", "localhost", ""));
        assert_eq!(elsewhere.0, "404 Not Found");
    }
}
