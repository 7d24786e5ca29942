"""Standard input as YAML documents, each as a line of JSON."""

import json
import sys

import yaml

for document in yaml.safe_load_all(sys.stdin):
    print(json.dumps(document))
