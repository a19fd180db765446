return plna { model = require "models.llama" "tiny" }
