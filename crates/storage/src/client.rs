//! HTTP/1.1 for stores in a cloud and for plain servers: connections that are kept, answers classified.
//!
//! A request with a `Range` is one attempt: its caller decides what follows. All others (listings, identities,
//! tokens) are small, and are tried again for a while. Read `client/failure.rs` and
//! `client/pool.rs` first.

pub(crate) mod dial;
pub(crate) mod failure;
mod form;
pub(crate) mod idle;
mod names;
mod page;
mod pool;
pub(crate) mod proxy;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_RANGE, HeaderMap, RANGE};
use hyper::{Method, Request, Response};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::fetcher::progress;
use crate::retry::{self, Pauses};
use failure::Failure;
pub(crate) use form::Whole;
pub(crate) use pool::config as trusted;
use pool::{Machine, Pool, Sender};
use proxy::Proxies;

/// The longest answer that is read as a whole; a page of a listing has some 500 kB.
const LONGEST_ANSWER: usize = 64 << 20;
/// What is on the same machine answers at once.
const NEAR: Duration = Duration::from_secs(2);
/// What a question to Google's own service has among its headers.
const OF_GOOGLE: &str = "metadata-flavor";
/// A page of a listing may be slow where a store looks at many names that are not in it.
const ONE_PAGE: Duration = Duration::from_secs(30);
/// A kept connection that says nothing for so long may be dead without our having heard of it: a router has
/// forgotten it. A small request is sent again on a new one.
const SILENT_FOR: Duration = Duration::from_secs(3);
/// As much of an error's text as is looked at.
const LONGEST_ERROR: usize = 64 << 10;

/// A client; its clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<Pool>);

/// Who gives up waiting for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The caller, who may ask a second time in the meantime.
    Callers,
    /// This client, as the request is small and the answer to it soon ready.
    Own,
}

impl Client {
    /// A client that trusts the system's certificates and those in `ca_file`, which is read when the first
    /// connection needs it.
    pub(crate) fn new(ca_file: Option<&Path>, proxies: Proxies) -> Self {
        Self(Arc::new(Pool::new(ca_file, proxies)))
    }

    /// Credentials come from the cloud's own service on this machine, which may have to start first.
    pub(crate) fn expect_machine(&self) {
        self.0.know_machine(Machine::Expected);
    }

    /// One attempt. An answer other than 2xx is a failure.
    pub(crate) async fn once(&self, request: &Whole) -> Result<Response<Kept>, Failure> {
        self.attempt(request, Patience::Callers).await
    }

    async fn attempt(
        &self,
        request: &Whole,
        patience: Patience,
    ) -> Result<Response<Kept>, Failure> {
        let (parts, sender) = self.send(request, patience).await?;
        let status = parts.status();
        let is_head = request.method() == Method::HEAD;
        let (head, body) = parts.into_parts();
        let proxy = sender.proxy().map(ToString::to_string);
        // Whoever takes the rest of a body gives the connection back.
        let home = Some((Arc::clone(&self.0), sender));
        let kept = Kept { body, home, came: Instant::now() };
        if status.is_success() {
            return Ok(Response::from_parts(head, kept));
        }
        let text = if is_head { Bytes::new() } else { kept.start(LONGEST_ERROR).await };
        let host = request.uri().host().unwrap_or_default();
        let failure = Failure::of_status(host, status.as_u16(), &head.headers, &text);
        Err(match proxy {
            // The answer to HEAD has no reason, which is asked for then.
            Some(proxy) if !is_head => failure.behind(&proxy),
            Some(_) | None => failure,
        })
    }

    /// On a connection that was kept, or on a new one. A server may close a kept one at any time, so
    /// what fails on it before an answer is sent again.
    async fn send(
        &self,
        request: &Whole,
        patience: Patience,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        if let Some(mut sender) = self.0.kept(request.uri()).await {
            let wait = self.0.wait(&sender);
            let form = sender.form(request)?;
            let asked = sender.send(form);
            let answer = match patience {
                Patience::Callers => asked.await.ok(),
                Patience::Own => {
                    let said = tokio::time::timeout(SILENT_FOR, asked).await;
                    said.ok().and_then(Result::ok)
                }
            };
            if let Some(answer) = answer {
                wait.end();
                return Ok((answer, sender));
            }
        }
        let mut sender = self.0.connect(request.uri()).await?;
        let form = sender.form(request)?;
        let answer = sender.send(form).await;
        answer.map(|answer| (answer, sender)).map_err(|error| Failure::broken(&error))
    }

    /// The whole answer, tried again as long as that may help and there is time.
    pub(crate) async fn again(
        &self,
        request: &Whole,
    ) -> Result<Response<Bytes>, Failure> {
        let is_near = is_of_machine(request);
        let (time, each) = match page::follows(request.uri()) {
            // It is asked by its name first, and then by its address.
            _ if is_near && request.headers().contains_key(OF_GOOGLE) => {
                (retry::WITHIN / 2, NEAR)
            }
            _ if is_near => (retry::WITHIN, NEAR),
            true => (retry::WITHIN_LISTING, ONE_PAGE),
            false => (retry::WITHIN, retry::WITHIN),
        };
        let mut pauses = Pauses::within(time);
        loop {
            let attempt = async {
                let answer = self.attempt(request, Patience::Own).await?;
                let (head, body) = answer.into_parts();
                let whole = body.whole(LONGEST_ANSWER).await?;
                Ok::<_, Failure>(Response::from_parts(head, whole))
            };
            let within = each.min(pauses.left());
            let failure = match tokio::time::timeout(within, attempt).await {
                Ok(Ok(answer)) => {
                    if is_near {
                        self.0.know_machine(Machine::There);
                    }
                    return Ok(answer);
                }
                Ok(Err(failure)) => failure,
                // In a container, some let requests through and no answer.
                Err(_) if is_near => {
                    let host = request.uri().host().unwrap_or_default().to_owned();
                    let why = format!("no answer within {} s", NEAR.as_secs());
                    Failure::Unreachable { host, why }
                }
                Err(_) => Failure::TimedOut(each),
            };
            let is_final = !failure.is_transient() || is_near && !self.may_pass(&failure);
            if is_final || !pauses.wait(failure.retry_after()).await {
                let was_there = is_near && self.0.machine() == Machine::There;
                return Err(if was_there { failure.of_machine() } else { failure });
            }
        }
    }

    /// Whether the cloud's own service fails only for now. One that has never answered is not waited for: it is not there.
    fn may_pass(&self, failure: &Failure) -> bool {
        let has_answered = matches!(failure, Failure::Status(_));
        has_answered || self.0.machine() != Machine::Unknown
    }
}

/// A range whose end is the last number there is: `object_store` adds one to it.
fn check_range(headers: &HeaderMap) -> Result<(), Failure> {
    let range = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let end = range.and_then(|range| range.split('/').next()?.rsplit_once('-'));
    match end.and_then(|(_, end)| end.trim().parse::<u64>().ok()) {
        Some(u64::MAX) => {
            let why = "the server's answer names a range that no object has";
            Err(Failure::Unusable(why.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether it asks the cloud's own address in a virtual machine, where none but its own answers: elsewhere
/// it is not there, and nobody should wait for it.
fn is_of_machine(request: &Whole) -> bool {
    request.uri().host().is_some_and(failure::is_of_machine)
}

/// A body that gives its connection back when it has been read.
#[derive(Debug)]
pub(crate) struct Kept {
    body: Incoming,
    home: Option<(Arc<Pool>, Sender)>,
    /// When its last part came.
    came: Instant,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some((pool, sender)) = self.home.take() {
            pool.gave_up(sender, self.came);
        }
    }
}

impl Kept {
    /// All of it, if that is at most `most` bytes.
    pub(crate) async fn whole(mut self, most: usize) -> Result<Bytes, Failure> {
        let expected = self.body.size_hint().exact().and_then(|len| len.try_into().ok());
        let mut whole = BytesMut::with_capacity(expected.unwrap_or(0).min(most));
        while let Some(data) = self.part().await? {
            if whole.len() + data.len() > most {
                return Err(Failure::Unusable(format!(
                    "the answer has more than {most} bytes"
                )));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    /// The next bytes of it.
    pub(crate) async fn part(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(frame) = self.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| Failure::broken(&error))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The first bytes, as far as they come; for the texts of errors.
    async fn start(mut self, most: usize) -> Bytes {
        let mut start = BytesMut::new();
        while start.len() < most {
            let Some(Ok(frame)) = self.frame().await else { break };
            if let Ok(data) = frame.into_data() {
                start.extend_from_slice(&data);
            }
        }
        start.freeze()
    }
}

impl Body for Kept {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            progress::came(frame.data_ref().map_or(0, Bytes::len));
            self.came = Instant::now();
        }
        let is_read = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_read && let Some((pool, sender)) = self.home.take() {
            pool.keep(sender);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl HttpService for Client {
    // Written out, as the trait's attribute macro would.
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> BoxFuture<'f, Result<HttpResponse, HttpError>>
    where
        's: 'f,
    {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // An object that is written may come in parts.
            let body = match body.as_bytes() {
                Some(bytes) => bytes.clone(),
                None => body.collect().await?.to_bytes(),
            };
            let request = Request::from_parts(head, Full::new(body));
            // Who reads a range or writes an object tries again itself, and gives it the time that it takes. A PUT to
            // the machine's own service asks for a token, which none but that service gives.
            let is_write = request.method() == Method::PUT && !is_of_machine(&request);
            if request.headers().contains_key(RANGE) || is_write {
                let answer = self.once(&request).await.map_err(into_http)?;
                check_range(answer.headers()).map_err(into_http)?;
                return Ok(answer.map(|body| {
                    let failed = |error| into_http(Failure::broken(&error));
                    HttpResponseBody::new(body.map_err(failed))
                }));
            }
            let answer = self.again(&request).await.map_err(into_http)?;
            page::check(request.uri(), answer.body()).map_err(into_http)?;
            Ok(answer.map(HttpResponseBody::from))
        })
    }
}

/// Never a kind that `object_store` would try again.
fn into_http(failure: Failure) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, failure)
}

impl HttpConnector for Client {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// The failure inside an error of `object_store`, or its text without what lies below.
pub(crate) fn failure_in(error: &object_store::Error) -> Option<&Failure> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return Some(failure);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests;
