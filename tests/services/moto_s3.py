"""moto's S3 for the tests: starts it on a free port of the loopback, makes the bucket `lakemark`, says where it is.

It ends when its stdin does.
"""

import logging
import sys

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
endpoint = f"http://{host}:{port}"
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
)
client.create_bucket(Bucket="lakemark")
print(endpoint, flush=True)
sys.stdin.read()
server.stop()
