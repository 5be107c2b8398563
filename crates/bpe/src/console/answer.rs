//! Requests and answers in JSON, and turns for requests that wait for a server.

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use super::error::Refusal;
use super::watched::Watched;

pub type Answer<T> = Result<T, Refusal>;

/// The JSON of a request; errors in it are reported like all others.
pub struct Said<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Said<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(said)) => Ok(Self(said)),
            Err(rejection) => Err(Refusal::new(rejection.status(), rejection.body_text())),
        }
    }
}

/// Runs work that waits for this server in another thread, once the server has a free turn.
///
/// # Errors
/// The error of the work, or no turn became free.
pub async fn blocking<T: Send + 'static>(
    server: &Watched,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let turn = server.turn().await.ok_or_else(|| {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server has not answered earlier requests yet",
        )
        .advise("try again when it does; the console keeps asking")
    })?;
    let done = tokio::task::spawn_blocking(move || {
        // The turn stays taken until the work ends, even if the client has disconnected.
        let _turn = turn;
        work()
    });
    done.await.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the console failed at this request; its terminal shows where",
        ))
    })
}
