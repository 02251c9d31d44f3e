//! The CRDs as they are generated: a change of the schema is a change of the API and must be seen in review.

use tessera_api::crds;

#[test]
fn crds_are_as_reviewed() {
    for (file, crd) in crds() {
        insta::assert_yaml_snapshot!(file, crd);
    }
}
