"""Federated matrix factorisation with Flower: each node is one user, and keeps its ratings and its factor."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import factorleak

N_ITEMS, N_FACTORS, N_RATED = 60, 5, 24
LEARNING_RATE = 0.02
STARS = [1, 2, 3, 4, 5]

client = ClientApp()
server = ServerApp()


def ratings_of(user):
    """The items that a user rated, and the stars; a real client would read its own."""
    rng = np.random.default_rng(user)
    return rng.choice(N_ITEMS, N_RATED, replace=False), rng.choice(
        STARS, N_RATED, p=[0.1, 0.1, 0.2, 0.3, 0.3]
    )


def gradients(q, p, items, ratings):
    """Gradients of the squared error with respect to the item factors and to the user's factor."""
    error = ratings - q[items] @ p
    of_items = np.zeros_like(q)
    of_items[items] = -2 * error[:, None] * p
    return of_items, -2 * error @ q[items]


@client.train()
def train(message, context):
    """Take the steps that the server asks for, and answer with what it asks for."""
    user, config = context.node_config["partition-id"], message.content["config"]
    items, ratings = ratings_of(user)
    q = message.content["arrays"]["item_factors"].numpy()
    if "private" not in context.state:
        start = np.random.default_rng(user + 1000).normal(0, 0.3, N_FACTORS)
        context.state["private"] = ArrayRecord({"user_factor": Array(start)})
    p = context.state["private"]["user_factor"].numpy()
    if config["upload"] == "weights":  # the client's copy of the item factors after its steps
        upload = q
        for _ in range(config["local-steps"]):
            of_items, of_user = gradients(upload, p, items, ratings)
            upload, p = upload - LEARNING_RATE * of_items, p - LEARNING_RATE * of_user
    else:  # the gradient of the loss, or of its mean over the ratings
        upload, of_user = gradients(q, p, items, ratings)
        upload, p = upload / (len(items) if config["upload"] == "mean" else 1), p - LEARNING_RATE * of_user
    context.state["private"]["user_factor"] = Array(p)
    metrics = {"num-examples": len(items), "partition-id": user}
    content = {"arrays": ArrayRecord({"item_factors": Array(upload)}), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


class FedSGD(FedAvg):
    """Steps the item factors against the mean of the gradients."""

    def configure_train(self, server_round, arrays, config, grid):
        """Remember what is broadcast."""
        self.broadcast = arrays["item_factors"].numpy()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        """Step."""
        mean, metrics = super().aggregate_train(server_round, replies)
        stepped = self.broadcast - LEARNING_RATE * mean["item_factors"].numpy()
        return ArrayRecord({"item_factors": Array(stepped)}), metrics


@server.main()
def main(grid, context):
    """Train, and record what the server sees."""
    config = context.run_config
    q = np.random.default_rng(0).normal(0, 0.3, (N_ITEMS, N_FACTORS))
    weights = config["upload"] == "weights"
    strategy = (FedAvg if weights else FedSGD)(fraction_evaluate=0.0)
    rule = {"upload": "weights" if weights else "gradient"}
    with factorleak.Recorder(config["recording"], rating_levels=STARS, rule=rule) as recorder:
        for user in range(config["users"]):
            recorder.truth(user, *ratings_of(user))
        grid = factorleak.RecordedGrid(grid, recorder, factors="item_factors", client="partition-id")
        strategy.start(
            grid,
            ArrayRecord({"item_factors": Array(q)}),
            num_rounds=config["rounds"],
            train_config=ConfigRecord({"upload": config["upload"], "local-steps": config["local-steps"]}),
        )
