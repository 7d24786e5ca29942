"""Parses standard input as OpenMetrics, as strictly as the Prometheus project's own parser does: one line a metric family."""

import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation and family.samples, family
    print(family.type, family.name, len(family.samples))
print("metrics complete")
