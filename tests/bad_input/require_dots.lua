require "models..llama"
