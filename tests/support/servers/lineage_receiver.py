"""Judges OpenLineage events: each must survive a round trip through the client's own classes.

The client's package has no JSON schemas; its classes are generated from the published ones.  Every required field, every
type of a plain value and every name is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attr
from openlineage.client import event_v2, facet_v2
from openlineage.client.generated import base
from openlineage.client.serde import Serde

FACETS = {
    "parent": facet_v2.parent_run.ParentRunFacet,
    # The client adds its own version.
    "tags": facet_v2.tags_run.TagsRunFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    "sourceCodeLocation": facet_v2.source_code_location_job.SourceCodeLocationJobFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "dataQualityAssertions": facet_v2.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}


def judged(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event, after a round trip through the client's classes.  Raises if it is not as they say."""
    again = _built(event_v2.RunEvent, event)
    assert Serde.to_dict(again) == event
    return event


def _built(kind: Any, value: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        return None if value is None and len(kinds) < len(get_args(kind)) else _built(kinds[0], value)
    if get_origin(kind) is list:
        assert isinstance(value, list)
        return [_built(get_args(kind)[0], one) for one in value]
    if get_origin(kind) is dict:
        return {name: _built(FACETS[name], facet) for name, facet in value.items()}
    if isinstance(kind, type) and attr.has(kind):
        return _object(kind, value)
    if isinstance(kind, type) and issubclass(kind, base.EventType):
        return kind(value)
    assert type(value) is kind, (kind, value)
    return value


def _object(kind: Any, given: Mapping[str, Any]) -> Any:
    hints, fields = get_type_hints(kind), attr.fields_dict(kind)
    assert set(given) <= set(fields), (kind, set(given) - set(fields))
    values = {
        fields[name].alias: _built(hints[name], value) for name, value in given.items() if fields[name].init
    }
    made = kind(**values)
    assert all(getattr(made, name) == value for name, value in given.items() if not fields[name].init)
    return made
