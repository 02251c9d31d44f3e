//! The one place that reads clocks, so that everything else takes a `now`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use std::time::Instant;

/// Monotonic time: for deadlines and expiry.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time: only for what people read (conditions, events, Lease times), never for decisions about expiry.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// [`wall`] as the API's `Time`, in whole seconds as the API server stores it.
pub fn time() -> Time {
    let seconds = wall().as_second();
    Time(Timestamp::from_second(seconds).unwrap_or_else(|_| wall()))
}

/// [`wall`] as the API's `MicroTime`.
pub fn micro_time() -> MicroTime {
    MicroTime(wall())
}
