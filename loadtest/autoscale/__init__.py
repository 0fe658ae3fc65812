"""Does the autoscaling of ``k8s/`` follow a load without flapping? A simulation on a recording."""
