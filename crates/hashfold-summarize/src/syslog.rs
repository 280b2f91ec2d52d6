//! The header of a syslog message (RFC 5424), which is around events that a syslog daemon sends.

use memchr::memchr;

/// Fields between the priority and the structured data: version and time, host, application, process, message id.
const FIELDS: usize = 6;

/// Returns the message behind the header: `<34>1 2026-11-27T01:00:00Z host app 4711 id [data k="v"] message`.
///
/// # Errors
/// The reason why the bytes are no syslog message.
pub fn message(frame: &[u8]) -> Result<&[u8], &'static str> {
    let Some(mut rest) = frame.strip_prefix(b"<") else {
        return Err("no syslog message: no priority");
    };
    for _ in 0..FIELDS {
        let end = memchr(b' ', rest).ok_or("no syslog message: too few fields")?;
        rest = &rest[end + 1..];
    }
    let rest = structured_data(rest)?;
    let message = match rest {
        [] => rest,
        [b' ', message @ ..] => message,
        _ => return Err("no syslog message: no space before the message"),
    };
    Ok(message.strip_prefix(b"\xef\xbb\xbf").unwrap_or(message))
}

/// Skips structured data: `-`, or elements in brackets whose values are in quotes.
fn structured_data(bytes: &[u8]) -> Result<&[u8], &'static str> {
    if let Some(rest) = bytes.strip_prefix(b"-") {
        return Ok(rest);
    }
    let mut rest = bytes;
    let mut has_element = false;
    while let Some(inside) = rest.strip_prefix(b"[") {
        let end = element_end(inside).ok_or("no syslog message: structured data without an end")?;
        rest = &inside[end + 1..];
        has_element = true;
    }
    if has_element { Ok(rest) } else { Err("no syslog message: no structured data") }
}

/// Returns the place of the bracket that ends an element.
fn element_end(inside: &[u8]) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    inside.iter().position(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b']' if !is_quoted => return true,
            _ => {}
        }
        false
    })
}
