"""Devices and worker processes on this machine: addresses, and `TF_CONFIG`."""

import json
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
    return json.dumps(
        {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
    )


def free_addresses(count):
    """That many addresses of this machine at which nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()
