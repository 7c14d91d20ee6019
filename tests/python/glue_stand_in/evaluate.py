"""Stands in for the package evaluate in Accelerate's scripts: the accuracy of GLUE's MRPC."""


class Accuracy:
    def __init__(self):
        self.right = self.count = 0

    def add_batch(self, predictions, references):
        self.right += int((predictions == references).sum())
        self.count += len(references)

    def compute(self):
        accuracy = self.right / self.count
        self.right = self.count = 0
        return {"accuracy": accuracy}


def load(path, name):
    return Accuracy()
