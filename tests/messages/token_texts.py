"""Short invented texts, each with the tokens that o200k_base (tiktoken 0.14) makes of it."""

from __future__ import annotations

import re
from typing import Final


def parsed(texts: str) -> dict[str, tuple[int, str]]:
    """Tokens and text by the name, of texts that a line with name and tokens heads."""
    _, *found = re.split(r"(?m)^=== (.+) (\d+)\n", texts)
    heads = zip(found[::3], found[1::3], found[2::3], strict=True)
    # Words are one line, which ends with its text; code ends with its last line.
    return {n: (int(k), text if text.count("\n") > 1 else text[:-1]) for n, k, text in heads}


LANGUAGES: Final = parsed("""
=== English 85
The night shift found the second pump running although nobody had switched it on. Mara wrote the \
time into the log, turned the valve back by hand and called the workshop. They decided to keep \
the water level below two metres until the sensor has been replaced, and to check every hour \
whether the pressure in the main pipe stays where it should be. Please do not change the \
settings before the engineer has looked at them on Thursday.
=== German 103
Die Nachtschicht stellte fest, dass die zweite Pumpe lief, obwohl niemand sie eingeschaltet \
hatte. Mara trug die Uhrzeit ins Betriebsbuch ein, drehte das Ventil von Hand zurück und rief \
die Werkstatt an. Bis der Fühler ausgetauscht ist, soll der Wasserstand unter zwei Metern \
bleiben, und jede Stunde wird geprüft, ob der Druck in der Hauptleitung stimmt. Bitte ändert \
nichts an den Einstellungen, bevor die Ingenieurin sie am Donnerstag gesehen hat.
=== French 103
L'équipe de nuit a constaté que la deuxième pompe tournait alors que personne ne l'avait mise \
en marche. Mara a noté l'heure dans le registre, refermé la vanne à la main et appelé \
l'atelier. Ils ont décidé de maintenir le niveau d'eau au-dessous de deux mètres jusqu'au \
remplacement du capteur et de vérifier chaque heure que la pression reste normale dans la \
conduite principale. Merci de ne pas modifier les réglages avant que l'ingénieure les ait \
examinés jeudi.
=== Spanish 95
El turno de noche descubrió que la segunda bomba estaba funcionando aunque nadie la había \
encendido. Mara anotó la hora en el registro, cerró la válvula a mano y llamó al taller. \
Decidieron mantener el nivel del agua por debajo de dos metros hasta que se cambie el sensor y \
comprobar cada hora que la presión de la tubería principal sigue siendo correcta. Por favor, \
no cambiéis los ajustes antes de que la ingeniera los vea el jueves.
=== Portuguese 99
O turno da noite descobriu que a segunda bomba estava a funcionar, embora ninguém a tivesse \
ligado. A Mara anotou a hora no registo, fechou a válvula à mão e telefonou para a oficina. \
Decidiram manter o nível da água abaixo de dois metros até que o sensor seja substituído e \
verificar de hora em hora se a pressão na conduta principal continua certa. Por favor, não \
alterem as definições antes de a engenheira as ver na quinta-feira.
=== Italian 119
Il turno di notte ha scoperto che la seconda pompa era in funzione, anche se nessuno l'aveva \
accesa. Mara ha annotato l'ora nel registro, ha chiuso la valvola a mano e ha chiamato \
l'officina. Hanno deciso di tenere il livello dell'acqua sotto i due metri finché il sensore \
non sarà sostituito e di controllare ogni ora che la pressione nella condotta principale sia \
quella giusta. Per favore, non cambiate le impostazioni prima che l'ingegnera le abbia viste \
giovedì.
=== Polish 139
Nocna zmiana zauważyła, że druga pompa pracuje, chociaż nikt jej nie włączał. Mara zapisała \
godzinę w dzienniku, zakręciła zawór ręcznie i zadzwoniła do warsztatu. Postanowili \
utrzymywać poziom wody poniżej dwóch metrów, dopóki czujnik nie zostanie wymieniony, i co \
godzinę sprawdzać, czy ciśnienie w głównym rurociągu jest właściwe. Proszę nie zmieniać \
ustawień, zanim w czwartek nie obejrzy ich inżynierka.
=== Russian 99
Ночная смена обнаружила, что второй насос работает, \
хотя его никто не включал. Мара записала время в \
журнал, закрыла вентиль вручную и позвонила в \
мастерскую. Было решено держать уровень воды ниже \
двух метров, пока не заменят датчик, и каждый час \
проверять, остаётся ли давление в главном \
трубопроводе нормальным. Пожалуйста, не меняйте \
настройки до четверга, пока их не посмотрит инженер.
=== simplified Chinese 119
夜班发现第二台水泵正在运行,可是没有人打开过它。玛拉把时间写进了记录本,用手关上阀门,然后给维修车间\
打了电话。他们决定在更换传感器之前把水位保持在两米以下,并且每小时检查一次主管道里的压力是否正常。\
在工程师星期四查看之前,请不要修改任何设置。如果报警器再次响起,请先关闭电源,再通知值班的同事,并把\
当时的读数记下来。
=== traditional Chinese 138
夜班發現第二台水泵正在運轉,可是沒有人打開過它。瑪拉把時間寫進了記錄本,用手關上閥門,然後給維修廠打\
了電話。他們決定在更換感測器之前把水位保持在兩公尺以下,並且每小時檢查一次主管道裡的壓力是否正常。\
在工程師星期四查看之前,請不要修改任何設定。如果警報器再次響起,請先關閉電源,再通知值班的同事,並把\
當時的讀數記下來。
=== Japanese 160
夜勤の担当者は、誰もスイッチを入れていないのに二台目のポンプが動いていることに気づいた。マラは時\
刻を記録簿に書き、手でバルブを閉めて、整備工場に電話をかけた。センサーを交換するまでは水位を二メ\
ートルより低く保ち、主配管の圧力が正常かどうかを一時間ごとに確認することになった。木曜日に技師が\
確認するまで、設定を変更しないでください。警報がもう一度鳴ったら、先に電源を切ってから当番の人に\
知らせてください。
=== Korean 122
야간 근무자는 아무도 켜지 않았는데 두 번째 펌프가 돌아가고 있다는 것을 발견했다. 마라는 시간을 \
일지에 적고 밸브를 손으로 잠근 다음 정비소에 전화했다. 센서를 교체할 때까지 수위를 2미터 아래로 \
유지하고, 주 배관의 압력이 정상인지 한 시간마다 확인하기로 했다. 목요일에 기술자가 살펴볼 때까지 \
설정을 바꾸지 마세요. 경보가 다시 울리면 먼저 전원을 끄고 당직자에게 알려 주세요.
=== Hindi 113
रात की पाली ने देखा कि दूसरा पंप चल रहा है, जबकि उसे किसी ने चालू नहीं किया था। मारा ने समय \
रजिस्टर में लिखा, वाल्व को हाथ से बंद किया और कार्यशाला को फ़ोन किया। उन्होंने तय किया कि जब तक सेंसर \
बदला नहीं जाता, पानी का स्तर दो मीटर से नीचे रखा जाएगा और हर घंटे यह जाँचा जाएगा कि मुख्य पाइप में \
दबाव ठीक है या नहीं। कृपया गुरुवार को इंजीनियर के देखने से पहले सेटिंग न बदलें।
""")

CODE: Final = parsed('''
=== Python 188
class Reservoir:
    """A tank whose level is read by several sensors."""

    def __init__(self, name: str, capacity: float) -> None:
        self.name = name
        self.capacity = capacity
        self._readings: list[Reading] = []

    def level(self) -> float | None:
        """The median of the last readings, or None where there are none."""
        recent = [one.value for one in self._readings[-5:] if one.valid]
        if not recent:
            return None
        return sorted(recent)[len(recent) // 2]

    def record(self, reading: Reading) -> bool:
        if not 0.0 <= reading.value <= self.capacity:
            logger.warning("%s: reading %s is out of range", self.name, reading)
            return False
        self._readings.append(reading)
        return True
=== indented Python 84
                    for sensor in station.sensors:
                        if sensor.enabled and sensor.kind == "pressure":
                            value = sensor.read(timeout=2.5)
                            if value is None:
                                failures.append(
                                    SensorFailure(
                                        station=station.name,
                                        sensor=sensor.identifier,
                                        reason="no answer",
                                    )
                                )
                            else:
                                readings.setdefault(
                                    station.name,
                                    [],
                                ).append(value)
=== TypeScript 144
export interface Reading {
  sensor: string;
  value: number;
  takenAt: Date;
}

export async function loadReadings(station: string, limit = 50): Promise<Reading[]> {
  const response = await fetch(`/api/stations/${station}/readings?limit=${limit}`);
  if (!response.ok) {
    throw new Error(`Could not load readings: ${response.status}`);
  }
  const rows: unknown[] = await response.json();
  return rows.filter(isReading).map((row) => ({ ...row, takenAt: new Date(row.takenAt) }));
}

const byValue = (a: Reading, b: Reading) => a.value - b.value;
=== Go 132
package reservoir

import (
	"errors"
	"sort"
)

// ErrNoReadings is returned when a tank has not been read yet.
var ErrNoReadings = errors.New("no readings")

type Tank struct {
	Name     string
	readings []float64
}

// Level returns the median of the last readings.
func (t *Tank) Level() (float64, error) {
	if len(t.readings) == 0 {
		return 0, ErrNoReadings
	}
	recent := append([]float64(nil), t.readings...)
	sort.Float64s(recent)
	return recent[len(recent)/2], nil
}
=== Rust 141
use std::collections::HashMap;

/// A tank whose level is read by several sensors.
pub struct Tank {
    name: String,
    readings: HashMap<String, Vec<f64>>,
}

impl Tank {
    pub fn new(name: &str) -> Self {
        Tank { name: name.to_string(), readings: HashMap::new() }
    }

    pub fn level(&self, sensor: &str) -> Option<f64> {
        let values = self.readings.get(sensor)?;
        let mut sorted = values.clone();
        sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
        sorted.get(sorted.len() / 2).copied()
    }
}
=== Java 199
package org.example.reservoir;

import java.util.ArrayList;
import java.util.List;

/** A tank whose level is read by several sensors. */
public final class Tank {
    private static final int KEPT = 24;
    private final List<Double> readings = new ArrayList<>();

    /** Adds a reading; the oldest goes when there are more than {@link #KEPT}. */
    public void record(double metres) {
        if (metres < 0.0 || Double.isNaN(metres)) {
            throw new IllegalArgumentException("not a level: " + metres);
        }
        readings.add(metres);
        while (readings.size() > KEPT) {
            readings.remove(0);
        }
    }

    double median() {
        var sorted = readings.stream().mapToDouble(d -> d).sorted().toArray();
        return sorted.length == 0 ? -1 : sorted[sorted.length / 2];
    }
}
=== C++ 150
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

// A tank whose level is read by several sensors.
class Tank {
 public:
  explicit Tank(std::string name) : name_(std::move(name)) {}

  void record(double value) {
    if (value < 0.0) return;
    readings_.push_back(value);
  }

  std::optional<double> level() const {
    if (readings_.empty()) return std::nullopt;
    std::vector<double> sorted(readings_);
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  std::string name_;
  std::vector<double> readings_;
};
=== JSON 132
{
  "station": "north",
  "interval": 60,
  "sensors": [
    {"id": "p-17", "kind": "pressure", "unit": "bar", "enabled": true, "range": [0.5, 9.75]},
    {"id": "l-02", "kind": "level", "unit": "m", "enabled": false, "range": [0, 12]}
  ],
  "contacts": {
    "operator": "mara@example.org",
    "phone": null
  },
  "labels": ["outdoor", "winter"]
}
=== logs 175
2026-03-14 02:17:05,318 INFO  [pump-2] started by controller 10.4.0.17 (pid 4182)
2026-03-14 02:17:05,912 WARN  [valve-7] position 38% differs from target 0%
2026-03-14 02:17:41,004 ERROR [sensor-p17] no answer after 2500 ms, retry 1 of 3
2026-03-14 02:17:43,507 ERROR [sensor-p17] no answer after 2500 ms, retry 2 of 3
2026-03-14 02:18:10,220 INFO  [pump-2] stopped, ran 64.9 s at 1450 rpm
''')
