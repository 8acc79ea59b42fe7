//! The form in which a request is sent.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{HOST, HeaderName, HeaderValue};

use super::failure::Failure;

/// A request whose body is whole.
pub(crate) type Whole = Request<Full<Bytes>>;

/// With the headers that tell the server its name and ours.
pub(super) fn with_host(request: &Whole) -> Result<Whole, Failure> {
    let mut request = request.clone();
    let authority = request.uri().authority().ok_or_else(no_request)?.as_str();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = HeaderValue::from_str(host).map_err(|_| no_request())?;
    request.headers_mut().entry(HOST).or_insert(host);
    let agent = HeaderValue::from_static(concat!("bothends/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(HeaderName::from_static("user-agent"), agent);
    Ok(request)
}

/// As HTTP/1.1 sends it to a server, without the server's name in the first line.
pub(super) fn origin_form(mut request: Whole) -> Result<Whole, Failure> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| no_request())?;
    Ok(request)
}

fn no_request() -> Failure {
    Failure::Unusable("the address cannot be requested".to_owned())
}
