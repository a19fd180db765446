require "require_itself"
