"""A saved model at work: the service of `acenode serve` (extra `serve`), and an MLflow model (extra `mlflow`)."""
