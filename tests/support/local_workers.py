"""Devices and worker processes on this machine: addresses, and `TF_CONFIG`."""

import contextlib
import json
import random
import socket

import tensorflow as tf


def split_processor(count=2):
    """Make so many devices of the processor, before TensorFlow starts."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * count,
    )


def tf_config(addresses, index):
    """`TF_CONFIG` for one of the workers at these addresses."""
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def free_ports():
    """Ports of this machine at which nobody listens, in no order.

    They lie below those that Linux gives to whoever asks for any, so that
    nobody gets one before the process that it is meant for.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 32_768)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            yield port


def free_addresses(count):
    """That many addresses of this machine at which nobody listens."""
    ports = set()
    for port in free_ports():
        ports.add(port)
        if len(ports) == count:
            return [f"127.0.0.1:{port}" for port in ports]
