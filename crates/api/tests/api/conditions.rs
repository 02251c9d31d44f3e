//! The summary of a policy is a function of its conditions.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use tessera_api::{
    ComponentCondition, EffectivePolicy, Reason,
    conditions::{ConditionStatus, computed, condition, find, set_condition, summary},
    policy::{NodeExceptions, State},
};

use crate::effective;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn reported(policy: &EffectivePolicy, status: ConditionStatus, reason: Reason) -> Vec<Condition> {
    let enabled = ComponentCondition::COMPONENTS
        .into_iter()
        .filter(|c| c.is_enabled(policy));
    enabled
        .map(|c| condition(&[], c.as_str(), status, reason, "m", 3, at(1)))
        .collect()
}

fn put(
    conditions: &mut Vec<Condition>,
    component: ComponentCondition,
    status: ConditionStatus,
    reason: Reason,
) {
    let new = condition(
        conditions,
        component.as_str(),
        status,
        reason,
        "because",
        3,
        at(1),
    );
    set_condition(conditions, new);
}

#[test]
fn ready_when_all_enabled_components_are() {
    let policy = effective("{}");
    let conditions = reported(&policy, ConditionStatus::True, Reason::Ready);
    let (state, ready) = summary(&conditions, &policy, 3, at(2));
    assert_eq!(
        (state, ready.status.as_str(), ready.reason.as_str()),
        (State::Ready, "True", "Ready")
    );
    assert_eq!(ready.observed_generation, Some(3));
}

#[test]
fn the_first_in_bring_up_order_gives_the_reason() {
    let policy = effective("{}");
    let mut conditions = reported(&policy, ConditionStatus::True, Reason::Ready);
    put(
        &mut conditions,
        ComponentCondition::ExporterReady,
        ConditionStatus::False,
        Reason::CrashLooping,
    );
    put(
        &mut conditions,
        ComponentCondition::ToolkitReady,
        ConditionStatus::False,
        Reason::ImagePullFailed,
    );
    let (state, ready) = summary(&conditions, &policy, 3, at(2));
    assert_eq!(
        (state, ready.reason.as_str()),
        (State::NotReady, "ImagePullFailed")
    );
    assert!(
        ready
            .message
            .contains("ToolkitReady: because; ExporterReady: because"),
        "{}",
        ready.message
    );
}

#[test]
fn an_enabled_component_that_nobody_reported_has_no_controller() {
    let policy = effective("{}");
    let mut conditions = reported(&policy, ConditionStatus::True, Reason::Ready);
    conditions.retain(|c| c.type_ != "ExporterReady");
    let (state, ready) = summary(&conditions, &policy, 3, at(2));
    assert_eq!(
        (state, ready.reason.as_str()),
        (State::NotReady, "NoController")
    );
    assert!(
        ready
            .message
            .contains("dcgm-monitor-controller has not reported yet: it may be starting"),
        "{}",
        ready.message
    );
    let without = effective("dcgmExporter: {enabled: false}");
    assert_eq!(summary(&conditions, &without, 3, at(2)).0, State::Ready);
}

#[test]
fn neutral_reasons_leave_the_policy_ready() {
    let policy = effective("dcgmExporter: {serviceMonitor: {enabled: true}}");
    let mut conditions = reported(&policy, ConditionStatus::True, Reason::Ready);
    put(
        &mut conditions,
        ComponentCondition::MonitoringReady,
        ConditionStatus::False,
        Reason::CRDNotInstalled,
    );
    put(
        &mut conditions,
        ComponentCondition::MigReady,
        ConditionStatus::False,
        Reason::NoCapableNodes,
    );
    assert_eq!(summary(&conditions, &policy, 3, at(2)).0, State::Ready);
    let nobody = reported(&policy, ConditionStatus::True, Reason::NoGPUNodes);
    let (state, ready) = summary(&nobody, &policy, 3, at(2));
    assert_eq!((state, ready.reason.as_str()), (State::Ready, "NoGPUNodes"));
}

#[test]
fn a_condition_of_an_older_generation_does_not_count() {
    let policy = effective("{}");
    let conditions = reported(&policy, ConditionStatus::True, Reason::Ready);
    let (state, ready) = summary(&conditions, &policy, 4, at(2));
    assert_eq!(
        (state, ready.reason.as_str()),
        (State::NotReady, "NotObserved")
    );
}

#[test]
fn everything_off_is_ready() {
    let policy = effective(
        "{driver: {enabled: false}, toolkit: {enabled: false}, validator: {enabled: false}, devicePlugin: {enabled: false}, \
         gfd: {enabled: false}, migManager: {enabled: false}, dcgmExporter: {enabled: false}}",
    );
    let (state, ready) = summary(&[], &policy, 1, at(2));
    assert_eq!((state, ready.reason.as_str()), (State::Ready, "Disabled"));
}

#[test]
fn transition_times_survive_what_is_unchanged() {
    let policy = effective("vgpuManager: {enabled: true}");
    let (_, first) = computed(
        reported(&policy, ConditionStatus::True, Reason::Ready),
        &policy,
        3,
        at(10),
    );
    let (_, again) = computed(first.clone(), &policy, 3, at(20));
    assert_eq!(first, again);
    let supported = find(&again, "Supported").expect("computed");
    assert_eq!(
        (supported.status.as_str(), supported.reason.as_str()),
        ("False", "UnsupportedFields")
    );
    assert!(supported.message.contains("vgpuManager.enabled"));
    let mut changed = again;
    let new = condition(
        &changed,
        "DriverReady",
        ConditionStatus::False,
        Reason::CrashLooping,
        "",
        3,
        at(30),
    );
    assert!(set_condition(&mut changed, new.clone()));
    assert!(!set_condition(&mut changed, new));
    assert_eq!(
        find(&changed, "DriverReady").map(|c| c.last_transition_time.0),
        Some(at(30))
    );
}

#[test]
fn reasons_are_camel_case_and_read_back() {
    for reason in Reason::ALL {
        let text = reason.as_str();
        assert!(
            text.starts_with(|c: char| c.is_ascii_uppercase())
                && text.chars().all(|c| c.is_ascii_alphanumeric())
        );
        assert_eq!(text.parse(), Ok(*reason));
    }
}

#[test]
fn exceptions_are_grouped() {
    let found = (0..7)
        .rev()
        .map(|n| (Reason::CrashLooping, format!("n{n}"), format!("m{n}")));
    let groups =
        NodeExceptions::group(found.chain([(Reason::Unschedulable, "x".into(), String::new())]));
    assert_eq!(groups.len(), 2);
    let first = groups.first().expect("a group");
    assert_eq!(
        (
            first.count,
            first.nodes.join(" ").as_str(),
            first.message.as_deref()
        ),
        (7, "n0 n1 n2 n3 n4", Some("m0"))
    );
}
