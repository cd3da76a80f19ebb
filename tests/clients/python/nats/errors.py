class Error(Exception):
    pass


class TimeoutError(Error):
    pass


class NoRespondersError(Error):
    def __str__(self):
        return "nats: no responders available for request"
