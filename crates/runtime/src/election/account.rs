//! The ServiceAccount that a process runs as, as the owner of its Lease: a Lease of a process that exists once an object
//! would else stay for ever when that object has gone.

use crate::clients::within;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;

/// Whose a Lease is.
#[derive(Default)]
pub(super) enum Owner {
    /// Nobody's: it stays.
    #[default]
    Nobody,
    /// Our account's, which is not known yet.
    Unknown,
    /// This account's.
    Account(OwnerReference),
}

impl Owner {
    /// Asks the API server who we are (a SelfSubjectReview, which everybody may create), unless that is known. No election
    /// waits for the answer: what fails is asked again before the next term.
    pub(super) async fn find(&mut self, leases: &Api<Lease>, limit: Duration) {
        if !matches!(self, Self::Unknown) {
            return;
        }
        let reviews: Api<SelfSubjectReview> = Api::all(leases.clone().into_client());
        let (params, review) = (PostParams::default(), SelfSubjectReview::default());
        match within(limit, reviews.create(&params, &review)).await {
            Ok(review) => {
                let user = review.status.and_then(|status| status.user_info);
                let owner = user.as_ref().and_then(of);
                *self = owner.map_or(Self::Nobody, Self::Account);
            }
            Err(error) => {
                let error = crate::error::sentence(&error);
                tracing::warn!(%error, "cannot ask whose the lease is: it would outlive its account");
            }
        }
    }

    /// For the Lease.
    pub(super) fn references(&self) -> Option<Vec<OwnerReference>> {
        match self {
            Self::Account(owner) => Some(vec![owner.clone()]),
            Self::Nobody | Self::Unknown => None,
        }
    }
}

/// ServiceAccounts are called `system:serviceaccount:<namespace>:<name>`, and their user's UID is theirs (Kubernetes,
/// "Authenticating": service account tokens). A Lease is in the namespace of its process, and so is the account.
fn of(user: &UserInfo) -> Option<OwnerReference> {
    let name = user.username.as_deref()?;
    let (_, name) = name
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let uid = user.uid.clone().filter(|uid| !uid.is_empty())?;
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        uid,
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_account_owns() {
        let user = |name: &str, uid: &str| UserInfo {
            username: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..UserInfo::default()
        };
        let owner = of(&user("system:serviceaccount:team:sre-agent-a", "u1")).unwrap();
        assert_eq!(
            (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
            ("ServiceAccount", "sre-agent-a", "u1")
        );
        assert_eq!(
            of(&user("system:serviceaccount:team:sre-agent-a", "")),
            None
        );
        assert_eq!(of(&user("kubernetes-admin", "u1")), None);
        assert_eq!(of(&UserInfo::default()), None);
    }
}
