//! A token bucket in which each class leaves a part to those above it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Class;

/// Tokens that come back with time.
#[derive(Debug)]
pub struct Bucket {
    rate: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket of `burst` tokens to which `rate` a second return; less than one of either counts as one.
    #[must_use]
    pub fn new(rate: u32, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        let state = State { tokens: burst, at: Instant::now() };
        Self { rate: f64::from(rate.max(1)), burst, state: Mutex::new(state) }
    }

    /// Takes a token once there is one for this class.
    pub async fn take(&self, class: Class) {
        while let Err(wait) = self.try_take(class) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a token if there is one for this class.
    ///
    /// # Errors
    /// How long it will take until there is one, if nobody else takes it.
    pub fn try_take(&self, class: Class) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let back = now.saturating_duration_since(state.at).as_secs_f64() * self.rate;
        state.tokens = (state.tokens + back).min(self.burst);
        state.at = now;
        // A bucket of one token has nothing to keep back.
        let floor = (class.reserve() * self.burst).min(self.burst - 1.0);
        let missing = floor + 1.0 - state.tokens;
        if missing <= 0.0 {
            state.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64(missing / self.rate).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_come_back_at_the_rate() {
        let bucket = Bucket::new(10, 5);
        for _ in 0..5 {
            bucket.try_take(Class::Urgent).unwrap();
        }
        let start = Instant::now();
        for _ in 0..20 {
            bucket.take(Class::Urgent).await;
        }
        let took = start.elapsed();
        assert!((Duration::from_millis(1990)..Duration::from_millis(2100)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn fr58_two_thousand_evictions_keep_to_the_rate_of_their_cluster() {
        let bucket = std::sync::Arc::new(Bucket::new(200, 400));
        let start = Instant::now();
        let one = |_| {
            let bucket = std::sync::Arc::clone(&bucket);
            tokio::spawn(async move {
                bucket.take(Class::Urgent).await;
                start.elapsed()
            })
        };
        let mut times = Vec::new();
        for eviction in (0..2000).map(one).collect::<Vec<_>>() {
            times.push(eviction.await.unwrap());
        }
        times.sort();
        // The burst goes at once; of the rest never more than the rate in any second.
        assert!(times[399] < Duration::from_millis(50), "{:?}", times[399]);
        assert!(times.windows(202).skip(400).all(|w| w[201] - w[0] > Duration::from_millis(990)));
        let all = times[1999];
        assert!((Duration::from_millis(7900)..Duration::from_millis(8400)).contains(&all), "{all:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_leaves_the_last_fifth() {
        let bucket = Bucket::new(1, 100);
        let all = |class| std::iter::from_fn(|| bucket.try_take(class).ok()).count();
        assert_eq!(all(Class::Event), 60);
        assert_eq!(all(Class::Hint), 10);
        assert_eq!(all(Class::Acknowledgement), 5);
        assert_eq!(all(Class::UpcomingNode), 5);
        assert_eq!(all(Class::Urgent), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_bucket_serves_every_class() {
        let bucket = Bucket::new(0, 0);
        bucket.take(Class::Event).await;
        bucket.take(Class::Event).await;
    }
}
