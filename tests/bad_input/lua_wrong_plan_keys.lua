return plan { "llama", 4 }
