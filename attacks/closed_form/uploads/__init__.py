"""What a round's rows are: their readings, their scale, their pull, the factor that moves beside them."""
