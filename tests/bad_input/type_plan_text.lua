return plan "llama"
