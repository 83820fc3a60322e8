"""Sets of values that the chart's tests render."""

from __future__ import annotations

from helm_binary import Manifest

SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": "demo"}},
    }
]
SHARED = {"accessModes": ["ReadWriteMany"]}
EXECUTORS: Manifest = {"executors": {"enabled": True}, "persistence": SHARED}
DELIVERERS: Manifest = {"deliverers": {"replicas": 2}, "persistence": SHARED}
INGRESS_TLS: Manifest = {
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "braid.example", "paths": [{"path": "/", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "braid-tls", "hosts": ["braid.example"]}],
    },
    "networkPolicy": {"enabled": True},
}
OPEN: Manifest = {
    "access": {"mode": "off"},
    "persistence": {"enabled": False},
    "dashboards": {"enabled": False},
    "serviceMonitor": {"enabled": True},
    "serviceAccount": {"create": False},
}
EVERYTHING_ON: Manifest = {
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "braid.example", "paths": [{"path": "/", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "braid-tls", "hosts": ["braid.example"]}],
    },
    "serviceMonitor": {
        "enabled": True,
        "interval": "5s",
        "scrapeTimeout": "4s",
        "labels": {"release": "prometheus"},
        "bearerTokenSecret": {"name": "braid-monitor"},
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "podDisruptionBudget": {"enabled": True},
    "dashboards": {"annotations": {"grafana_folder": "Braid"}},
    "image": {"repository": "images.example/braid", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "sparkConf": {"spark.driver.memory": "4g", "spark.ui.enabled": True},
    "executors": {
        "enabled": True,
        "instances": 3,
        "cores": 4,
        "cpuLimit": "4",
        "podAnnotations": {"g": "h"},
        "podLabels": {"tier": "executors"},
        "priorityClassName": "low",
        "nodeSelector": {"pool": "executors"},
        "tolerations": [{"key": "executors", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": SPREAD,
    },
    "deliverers": {
        "replicas": 4,
        "podAnnotations": {"i": "j"},
        "podLabels": {"tier": "deliverers"},
        "priorityClassName": "low",
        "nodeSelector": {"pool": "deliverers"},
        "tolerations": [{"key": "deliverers", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": SPREAD,
    },
    "access": {"mode": "on"},
    "secrets": {"values": {"shop_db": "geheim"}, "existing": ["kafka"], "files": ["kafka-tls", "registry-ca"]},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
        "egress": {
            "enabled": True,
            "kubernetesApi": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
            "rules": [{"to": [{"podSelector": {"matchLabels": {"app": "kafka"}}}], "ports": [{"port": 9092}]}],
        },
    },
    "config": "drain_timeout = 30\n\n[sinks]\nretries = 3\n",
    "settings": {"drain_timeout": 60},
    "extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "braid", "key": "token"}}}],
    "extraArgs": ["--help"],
    "extraVolumes": [{"name": "tables", "configMap": {"name": "tables"}}],
    "extraVolumeMounts": [{"name": "tables", "mountPath": "/tables"}],
    "persistence": {"accessModes": ["ReadWriteMany"], "storageClass": "fast", "annotations": {"backup": "yes"}},
    "service": {"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}},
    "serviceAccount": {"name": "streams", "annotations": {"c": "d"}},
    "podAnnotations": {"e": "f"},
    "podLabels": {"team": "streams"},
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
VALUE_SETS: dict[str, Manifest] = {
    "minimal": {},
    "executors": EXECUTORS,
    "deliverers": DELIVERERS,
    "ingress and TLS": INGRESS_TLS,
    "open": OPEN,
    "existing claim": EXECUTORS | {"persistence": {"existingClaim": "shared"}, "access": {"existingSecret": "keys"}},
    "everything on": EVERYTHING_ON,
}
