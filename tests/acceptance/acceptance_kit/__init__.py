"""What acceptance tests share: agents as child processes, a gateway that holds requests, servers of their own."""
