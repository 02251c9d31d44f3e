//! What cannot be used in the effective policy, as the controllers report it in conditions.

use super::case::Case;

pub(super) fn judge(case: &mut Case<'_>) {
    for problem in case.effective.problems.clone() {
        let (why, remedy) = problem
            .message
            .split_once(": ")
            .unwrap_or((&problem.message, ""));
        let others = depends_on(&problem.path, why);
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        case.refuse((&problem.path, &others), why, remedy);
    }
}

/// Other fields that such a problem follows from.
fn depends_on(path: &str, why: &str) -> Vec<String> {
    let fixed: &[&str] = match path {
        "devicePlugin.config.sharing" => &["mig.strategy", "migManager.enabled"],
        "devicePlugin.config.name" => &["devicePlugin.config.sharing"],
        "dcgmExporter.serviceMonitor.scrapeTimeout" => &["dcgmExporter.serviceMonitor.interval"],
        "cdi.nriPluginEnabled" => &["cdi.enabled", "toolkit.enabled"],
        "gds.enabled" | "gdrcopy.enabled" => &["driver.usePrecompiled"],
        _ => &[],
    };
    let mut others: Vec<String> = fixed.iter().map(|path| (*path).to_owned()).collect();
    if let Some(section) = path.strip_suffix(".image") {
        others.extend(["repository", "version"].map(|field| format!("{section}.{field}")));
    }
    // Of two equal names either may be the new one.
    if let Some((list, _)) = path
        .split_once(".resources[")
        .filter(|_| why.contains("second time"))
    {
        others.push(format!("{list}.resources"));
    }
    others
}
