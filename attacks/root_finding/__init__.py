"""Mai & Pang's attack: non-linear systems, solved client by client."""
