package job

import "encoding/json"

// Map says how a record of a billing file becomes a payload.
type Map struct {
	// Fields are the payload's fields; at least one. No field lies within another.
	Fields []MapField
	// Keep copies the fields of a record that Fields does not name into the payload unchanged. Default false:
	// they are dropped.
	Keep bool
	// Currency is the dotted path, in the payload, of the currency whose minor units amounts are converted to.
	// Empty: no field is MapMinor.
	Currency string
}

// MapField is one field of a payload and its source.
type MapField struct {
	// To is the field's dotted path in the payload.
	To string
	// From is the source: a column, or a field of an NDJSON line. It is ignored if Value is set.
	From string
	// Value is a constant as JSON; nil = take it from From.
	Value json.RawMessage
	// As is the conversion of the value of From. Default MapPlain.
	As MapAs
}

// MapAs is a conversion.
type MapAs string

// The conversions: none, whole minor units, number, boolean, lower case, upper case.
const (
	MapPlain   MapAs = ""
	MapMinor   MapAs = "minor"
	MapNumber  MapAs = "number"
	MapBoolean MapAs = "boolean"
	MapLower   MapAs = "lower"
	MapUpper   MapAs = "upper"
)

// MapWays returns the conversions that can be configured.
func MapWays() []MapAs { return []MapAs{MapMinor, MapNumber, MapBoolean, MapLower, MapUpper} }
